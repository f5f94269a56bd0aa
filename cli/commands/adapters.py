"""`loragate adapters …`: one tenant's adapters."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Upload, list, alias and delete a tenant's LoRA adapters.

Needs a tenant's key. Example: `loragate adapters upload ./outputs/support-bot`
""",
)

_VERSION_COLUMNS = ("name", "version", "rank", "size_bytes", "digest", "created_at")
Name = Annotated[str, typer.Argument(help="The adapter's name.")]


@app.command()
def upload(
    folder: Annotated[
        Path,
        typer.Argument(help="What PEFT saved: adapter_config.json and adapter_model.safetensors.", file_okay=False),
    ],
    name: Annotated[str | None, typer.Option(help="The adapter's name. [default: the folder's name]")] = None,
    alias: Annotated[
        str | None, typer.Option(help="The alias that moves to the new version. [default: `default`]")
    ] = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Upload a PEFT LoRA adapter as the next version of its name; it can be used at once.

    Examples:

    - `loragate adapters upload ./outputs/support-bot`
    - `loragate adapters upload ./outputs/checkpoint-800 --name support-bot --alias canary`
    """
    from loragate.cli.client.connect import as_tenant
    from loragate.cli.client.output import show_rows
    from loragate.cli.client.upload import upload as send

    with as_tenant(base_url, api_key, data_dir) as api:
        version = send(api, folder, name or folder.resolve().name, alias)
    show_rows([version], _VERSION_COLUMNS, as_json=as_json)


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
    from loragate.cli.client.connect import as_tenant
    from loragate.cli.client.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.every("/v1/adapters"), ("name", "latest_version", "aliases", "updated_at"), as_json=as_json)


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
    from loragate.cli.client.connect import as_tenant
    from loragate.cli.client.output import show_rows
    from loragate.cli.client.paths import path

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.every(path("v1", "adapters", name, "versions")), _VERSION_COLUMNS, as_json=as_json)


@app.command()
def alias(
    name: Name,
    alias: Annotated[str, typer.Argument(help="The alias; `default` is what the bare name means.")],
    targets: Annotated[list[str], typer.Argument(help="VERSION, or VERSION=WEIGHT for each of several.")],
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Point an alias at a version, or split its requests between versions by weight.

    Examples:

    - `loragate adapters alias support-bot default 3`
    - `loragate adapters alias support-bot default 3=90 4=10`
    """
    from loragate.cli.client.alias_targets import parse_targets
    from loragate.cli.client.connect import as_tenant
    from loragate.cli.client.output import show_json
    from loragate.cli.client.paths import path

    body = {"targets": parse_targets(targets)}
    with as_tenant(base_url, api_key, data_dir) as api:
        show_json(api.call("PUT", path("v1", "adapters", name, "aliases", alias), json=body))


@app.command()
def delete(
    name: Name,
    version: Annotated[int | None, typer.Option(help="Only this version.")] = None,
    yes: options.Yes = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Delete an adapter with all its versions, or one version. Running requests finish on theirs.

    Examples:

    - `loragate adapters delete support-bot --version 2`
    - `loragate adapters delete support-bot --yes`
    """
    from loragate.cli.client.connect import as_tenant
    from loragate.cli.client.paths import path

    what = name if version is None else f"{name}:{version}"
    if not yes:
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    parts = ("v1", "adapters", name) if version is None else ("v1", "adapters", name, "versions", version)
    with as_tenant(base_url, api_key, data_dir) as api:
        api.call("DELETE", path(*parts))
    typer.echo(f"deleted {what}")
