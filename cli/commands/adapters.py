"""`loragate adapters …`: one tenant's adapters. `adapter_files` holds the commands that transfer files,
`adapter_releases` those that move requests between versions."""

from typing import Annotated

import typer

from loragate.cli import options
from loragate.cli.commands import adapter_files, adapter_releases

app = typer.Typer(
    no_args_is_help=True,
    help="""Upload, list, release and delete a tenant's LoRA adapters.

Needs a tenant's key. Example: `loragate adapters upload ./outputs/support-bot`
""",
)

Name = options.AdapterName


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List adapters with their aliases, newest first.

    Example: `loragate adapters list`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.list_all("/v1/adapters"), ("name", "latest_version", "aliases", "updated_at"), as_json=as_json)


@app.command()
def show(
    name: Name,
    version: Annotated[int | None, typer.Option(help="Show this version instead of the adapter.")] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Show an adapter, or one of its versions, as JSON.

    Examples:

    - `loragate adapters show support-bot`
    - `loragate adapters show support-bot --version 2`
    """
    from loragate.cli.client.http.api import version_path
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json

    with as_tenant(base_url, api_key, data_dir) as api:
        show_json(api.call("GET", version_path(name, version)))


@app.command()
def versions(
    name: Name,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List an adapter's versions, latest first.

    Example: `loragate adapters versions support-bot`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import VERSION_COLUMNS, show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.list_all(path("v1", "adapters", name, "versions")), VERSION_COLUMNS, as_json=as_json)


@app.command()
def diff(
    name: Name,
    first: Annotated[int, typer.Argument(help="The first version.")],
    second: Annotated[int, typer.Argument(help="The second version.")],
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Show the differences between two versions: their configs, properties and lineage.

    Example: `loragate adapters diff support-bot 1 2`
    """
    from loragate.cli.client.differences import differences
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        rows = differences(api, name, first, second)
    show_rows(rows, ("field", str(first), str(second)), as_json=as_json)


@app.command()
def delete(
    name: Name,
    version: Annotated[int | None, typer.Option(help="Delete only this version.")] = None,
    alias: Annotated[str | None, typer.Option(help="Delete only this alias; its versions stay.")] = None,
    yes: options.Yes = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Delete an adapter with all its versions, one version, or an alias. Running requests finish normally.

    Examples:

    - `loragate adapters delete support-bot --version 2`
    - `loragate adapters delete support-bot --alias canary`
    - `loragate adapters delete support-bot --yes`
    """
    from loragate.cli.client.http.api import path, version_path
    from loragate.cli.client.http.connect import as_tenant

    if version is not None and alias is not None:
        raise typer.BadParameter("give either --version or --alias, not both")
    what, where = name if version is None else f"{name}:{version}", version_path(name, version)
    if alias is not None:
        what, where = f"{name}@{alias}", path("v1", "adapters", name, "aliases", alias)
    if not yes:
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    with as_tenant(base_url, api_key, data_dir) as api:
        api.call("DELETE", where)
    typer.echo(f"deleted {what}")


for command in (*adapter_files.COMMANDS, *adapter_releases.COMMANDS):
    app.command(command.__name__.rstrip("_").replace("_", "-"))(command)
