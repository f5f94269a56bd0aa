"""`loragate demo build|provision`: the two steps of the demo, which `loragate serve --demo` runs as processes."""

import typer

from loragate.cli import options

app = typer.Typer(no_args_is_help=True, help="Build and provision the demo.")


@app.command()
def build(data_dir: options.DataDir = None) -> None:
    """Train the demo's model and adapters unless that was done before, and print the model's directory.

    Example: `loragate demo build --data-dir .loragate`
    """
    from rich.console import Console

    from loragate.cli.settings.load import load
    from loragate.demo.build import build as build_demo

    settings = load(data_dir=data_dir)
    assets = build_demo(settings.data_dir / "demo", console=Console(stderr=True))
    typer.echo(assets.model_dir)


@app.command()
def provision(
    base_url: options.BaseUrl = None, admin_key: options.AdminKey = None, data_dir: options.DataDir = None
) -> None:
    """Create the demo's tenants, keys and adapters on a running server.

    Example: `loragate demo provision --base-url http://127.0.0.1:8000`
    """
    from loragate.cli.client.http.connect import find_admin_key, find_server, key_from
    from loragate.cli.settings.load import load
    from loragate.demo.build import build as build_demo
    from loragate.demo.provision import provision as provision_demo
    from loragate.gateway.http.tls import pinned

    options = {"base_url": base_url, "admin_key": key_from(admin_key), "data_dir": data_dir}
    settings = load(**options)
    server = find_server(settings, options)
    assets = build_demo(settings.data_dir / "demo")
    verify = True if server.certificate is None else pinned(server.certificate)
    key = find_admin_key(settings, options, server)
    provision_demo(assets, server.base_url, key, settings.data_dir, verify=verify)
