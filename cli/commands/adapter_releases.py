"""`loragate adapters alias|canary|promote|rollback|restore`: which requests get which version."""

from typing import Annotated

import typer

from loragate.cli import options

Moved = Annotated[str, typer.Option(help="The alias that moves; `default` is what the bare name means.")]


def alias(
    name: options.AdapterName,
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
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.http.paths import path
    from loragate.cli.client.terminal.output import show_json

    body = {"targets": parse_targets(targets)}
    with as_tenant(base_url, api_key, data_dir) as api:
        show_json(api.call("PUT", path("v1", "adapters", name, "aliases", alias), json=body))


def canary(
    name: options.AdapterName,
    percent: Annotated[int, typer.Option(min=1, max=99, help="Percent of the requests.")] = 10,
    version: Annotated[
        int | None, typer.Option(help="Who gets them. [default: what `canary` points at, or the latest]")
    ] = None,
    alias: Moved = "default",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Give a new version a share of the requests; whoever got it once keeps getting it.

    Examples:

    - `loragate adapters canary support-bot --percent 10`
    - `loragate adapters canary support-bot --version 4 --percent 50`
    """
    from loragate.cli.client.canary import send_share
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_alias

    with as_tenant(base_url, api_key, data_dir) as api:
        show_alias(send_share(api, name, alias, version, percent), as_json=as_json)


def promote(
    name: options.AdapterName,
    version: Annotated[
        int | None, typer.Option(help="Who gets all requests. [default: what `canary` points at]")
    ] = None,
    alias: Moved = "default",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Give one version all requests.

    Examples:

    - `loragate adapters promote support-bot`
    - `loragate adapters promote support-bot --version 4`
    """
    from loragate.cli.client.canary import CANARY
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.http.paths import path
    from loragate.cli.client.terminal.output import show_alias

    source: dict[str, object] = {"from_alias": CANARY} if version is None else {"version": version}
    with as_tenant(base_url, api_key, data_dir) as api:
        placed = api.call("POST", path("v1", "adapters", name, "promote"), json={"alias": alias, **source})
    show_alias(placed, as_json=as_json)


def rollback(
    name: options.AdapterName,
    alias: Moved = "default",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Point an alias at what it pointed at before it was last moved. Doing so again undoes that.

    Example: `loragate adapters rollback support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.http.paths import path
    from loragate.cli.client.terminal.output import show_alias

    with as_tenant(base_url, api_key, data_dir) as api:
        placed = api.call("POST", path("v1", "adapters", name, "rollback"), json={"alias": alias})
    show_alias(placed, as_json=as_json)


def restore(
    name: options.AdapterName,
    version: Annotated[int | None, typer.Option(help="Only this version.")] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Bring back an adapter that was deleted, or one version, while the server still has it.

    Examples:

    - `loragate adapters restore support-bot`
    - `loragate adapters restore support-bot --version 2`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.http.paths import version_path

    with as_tenant(base_url, api_key, data_dir) as api:
        api.call("POST", f"{version_path(name, version)}/restore")
    typer.echo(f"restored {name if version is None else f'{name}:{version}'}")


COMMANDS = (alias, canary, promote, rollback, restore)
