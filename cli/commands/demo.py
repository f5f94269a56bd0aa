"""`loragate demo build|provision`: make the shipped demo again, and create its tenants on a running server."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(no_args_is_help=True, help="Make the models of `loragate serve --demo` again.")


@app.command()
def build(
    out: Annotated[
        Path, typer.Option(help="The folder to build in. An interrupted build continues where it was.")
    ] = Path("loragate-demo"),
) -> None:
    """Train the demo's base model and adapters from their recipe, and print the model's folder.

    The package ships the result, so this is only needed to check it, or to change it. It takes about a quarter of an
    hour on two cores.

    Examples:

    - `loragate demo build`
    - `loragate demo build --out /tmp/demo`, then `loragate serve --model /tmp/demo/loragate-demo`
    """
    from rich.console import Console

    from loragate.cli.errors import CliError
    from loragate.demo import BuildError, shipped_mismatch
    from loragate.demo import build as build_demo

    typer.echo(shipped_mismatch() or "demo: the shipped demo has this recipe", err=True)
    try:
        assets = build_demo(out, console=Console(stderr=True))
    except BuildError as error:
        raise CliError(str(error)) from None
    typer.echo(assets.model_dir)


@app.command(hidden=True)
def provision(
    base_url: options.BaseUrl = None, admin_key: options.AdminKey = None, data_dir: options.DataDir = None
) -> None:
    """Create the demo's tenants, keys and adapters on a running server.

    Example: `loragate demo provision --base-url http://127.0.0.1:8000`
    """
    from loragate.cli.client.http.connect import find_admin_key, find_server, key_from
    from loragate.cli.settings.load import load
    from loragate.demo import provision as provision_demo
    from loragate.demo import shipped_assets, shipped_mismatch
    from loragate.gateway.http.tls import pinned

    options = {"base_url": base_url, "admin_key": key_from(admin_key), "data_dir": data_dir}
    settings = load(**options)
    server = find_server(settings, options)
    if mismatch := shipped_mismatch():
        typer.echo(mismatch, err=True)
    verify = True if server.certificate is None else pinned(server.certificate)
    key = find_admin_key(settings, options, server)
    provision_demo(shipped_assets(), server.base_url, key, settings.data_dir, verify=verify)
