"""`loragate init` and `loragate certs`, the files of a new installation; `loragate doctor`, which checks one."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options


def init(
    model: options.Model = None,
    admin_key: Annotated[
        str | None,
        typer.Option(help="The admin key, or @FILE that contains it. [default: asked for; empty generates one]"),
    ] = None,
    first_tenant: Annotated[
        str | None, typer.Option(help="A tenant that the first start creates. [default: asked for; empty: none]")
    ] = None,
    host: options.Host = None,
    port: options.Port = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path, typer.Option(help="The settings file to write.")] = Path("loragate.toml"),
    systemd: Annotated[
        Path | None, typer.Option(help="Write a systemd unit, too, into this file. [default: none]")
    ] = None,
    memory_max: Annotated[
        str, typer.Option(help="The unit's MemoryMax: bytes, with K, M or G, or a share of the machine's memory.")
    ] = "90%",
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: generate the admin key, and create only a given tenant.")
    ] = False,
) -> None:
    """Write the settings of a new server into `loragate.toml`, from which `loragate serve` reads them.

    What is not given is asked for. The file has the admin key, so only you can read it.

    Examples:

    - `loragate init`
    - `loragate init --yes --model Qwen/Qwen3-0.6B --first-tenant acme`
    - `loragate init --yes --model ./model --host 0.0.0.0 --tls-cert fullchain.pem --tls-key privkey.pem --systemd
      loragate.service`
    """
    from loragate.adapter_store.auth.credentials import new_admin_key
    from loragate.cli.client.http.connect import key_from
    from loragate.cli.data_dir.preparation import make_data_dir
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.setup.settings_file import checked, write
    from loragate.cli.setup.systemd_unit import unit

    for file in (out, systemd):
        if file is not None and file.exists() and not force:
            raise CliError(f"{file} exists: --force replaces it", BAD_SETTING)
    if model is None:
        if yes:
            raise CliError("no model: give --model DIR_OR_HUB_ID", BAD_SETTING)
        model = typer.prompt("Model (a folder, or a hub id such as Qwen/Qwen3-0.6B)")
    if admin_key is None and not yes:
        admin_key = typer.prompt("Admin key (empty: generate one)", default="", hide_input=True, show_default=False)
    if first_tenant is None and not yes:
        first_tenant = typer.prompt("First tenant, which gets a key (empty: none)", default="", show_default=False)
    folder = Path(model).expanduser()
    given = {
        "model": str(folder.absolute()) if folder.is_dir() else model,
        "host": host,
        "port": port,
        "tls_cert": None if tls_cert is None else tls_cert.absolute(),
        "tls_key": None if tls_key is None else tls_key.absolute(),
        "data_dir": None if data_dir is None else data_dir.absolute(),
        "admin_key": key_from(admin_key) or new_admin_key(),
        "first_tenant": first_tenant or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    settings = checked(given)
    write(out, given, force=force)
    typer.echo(f"wrote {out}; only you can read it, because it has the admin key")
    if systemd is not None:
        try:
            systemd.write_text(unit(settings, out.absolute(), systemd, memory_max=memory_max), encoding="utf-8")
        except OSError as error:
            raise CliError(f"{systemd} cannot be written: {error.strerror}") from None
        make_data_dir(settings)  # systemd requires a folder that a unit may write to
        typer.echo(f"wrote {systemd}; its first lines say how to install it")
    serve = "loragate serve" if out == Path("loragate.toml") else f"loragate serve --config {out}"
    typer.echo(f"next: {serve}")


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


def doctor(
    as_json: options.AsJson = False,
    host: options.Host = None,
    port: options.Port = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Check this machine and the services it needs. The checks cover Python, CPU, memory, GPU, kernels, disk and port;
    the database (reachability, schema, connection limit); Redis (version, latency, eviction policy); the certificate
    (key, names, expiry); clocks, the trace collector and the settings.

    Each line is ok, warn or fail, with advice. The exit status is 1 if a check failed.

    Examples:

    - `loragate doctor`
    - `loragate doctor --host llm.example.org --tls-cert fullchain.pem --tls-key privkey.pem`
    - `LORAGATE_REDIS_URL=redis://cache:6379 loragate doctor --json`
    """
    from loragate.cli.doctor.report import examine, failed, show

    findings = examine(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        data_dir=data_dir,
        config=config,
    )
    show(findings, as_json=as_json)
    if failed(findings):
        raise typer.Exit(1)
