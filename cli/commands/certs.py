"""`loragate certs`: certificates of the links between engines and their clients."""

from pathlib import Path
from typing import Annotated

import typer


def certs(
    folder: Annotated[Path, typer.Argument(help="The folder of the authority and the certificates; made if missing.")],
    engine: Annotated[
        list[str] | None,
        typer.Option(help="An engine's host name or IP address, as gateways reach it. Give it once for each engine."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are valid.")] = 365,
) -> None:
    """Make the certificates with which engines on other machines and their clients recognize each other.

    The first call makes an authority (`ca.pem`, `ca.key`). Each call writes a certificate for clients (`client.pem`,
    `client.key`), and one for each engine (`NAME.pem`, `NAME.key`), in place of earlier ones. Running processes use
    the new files for their next connections. Keep `ca.key` away from the machines that serve.

    Examples:

    - `loragate certs ./certs --engine gpu-1 --engine gpu-2`
    - `loragate certs ./certs --engine gpu-1 --days 90`
    """
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.setup.certificates import AUTHORITY, CLIENT, CertificateFolder

    names = engine or []
    for name in names:
        if name in (AUTHORITY, CLIENT) or not name or "/" in name or name.startswith("."):
            raise CliError(f"--engine {name!r} is not the host name or IP address of an engine", BAD_SETTING)
    files = CertificateFolder(folder.resolve())
    try:
        if files.make_authority():
            typer.echo(f"made an authority: {files.cert(AUTHORITY)}", err=True)
        files.issue(CLIENT, ["loragate-client"], days=days, server=False)
        for name in names:
            files.issue(name, [name], days=days, server=True)
    except OSError as error:
        raise CliError(f"cannot write {error.filename or folder}: {error.strerror}") from None
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    for name in names:
        typer.echo(f"# on {name}")
        typer.echo(f"export LORAGATE_TLS_CERT={files.cert(name)} LORAGATE_TLS_KEY={files.key(name)}")
        typer.echo(f"export LORAGATE_TLS_CLIENT_CA={files.cert(AUTHORITY)}")
    typer.echo("# for gateways and fine-tune workers, and for engines that register themselves")
    typer.echo(f"export LORAGATE_ENGINE_CA={files.cert(AUTHORITY)}")
    typer.echo(f"export LORAGATE_ENGINE_CLIENT_CERT={files.cert(CLIENT)}")
    typer.echo(f"export LORAGATE_ENGINE_CLIENT_KEY={files.key(CLIENT)}")
