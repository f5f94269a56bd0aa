"""`loragate adapters alias|canary|promote|rollback|restore`: which version serves which requests."""

from typing import Annotated

import typer

from loragate.cli import options

Moved = Annotated[str, typer.Option(help="The alias to change; requests without an alias use `default`.")]


def alias(
    name: options.AdapterName,
    alias: Annotated[str, typer.Argument(help="The alias; requests without an alias use `default`.")],
    targets: Annotated[list[str], typer.Argument(help="VERSION, or VERSION=WEIGHT for each of several versions.")],
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Point an alias at a version, or split its requests between several versions by weight.

    Examples:

    - `loragate adapters alias support-bot default 3`
    - `loragate adapters alias support-bot default 3=90 4=10`
    """
    from loragate.cli.client.aliases import parse_targets
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json

    body = {"targets": parse_targets(targets)}
    with as_tenant(base_url, api_key, data_dir) as api:
        show_json(api.call("PUT", path("v1", "adapters", name, "aliases", alias), json=body))


def canary(
    name: options.AdapterName,
    percent: Annotated[int, typer.Option(min=1, max=99, help="The percentage of the requests.")] = 10,
    version: Annotated[
        int | None, typer.Option(help="The version to send them to. [default: the one of `canary`, or the latest]")
    ] = None,
    alias: Moved = "default",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Send a share of the requests to a new version. Requests with the same `user` always get the same version.

    Examples:

    - `loragate adapters canary support-bot --percent 10`
    - `loragate adapters canary support-bot --version 4 --percent 50`
    """
    from loragate.cli.client.aliases import set_canary_share, show_alias
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        show_alias(set_canary_share(api, name, alias, version, percent), as_json=as_json)


def promote(
    name: options.AdapterName,
    version: Annotated[
        int | None, typer.Option(help="The version to send them to. [default: the one that `canary` points at]")
    ] = None,
    alias: Moved = "default",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Send all requests of an alias to one version.

    Examples:

    - `loragate adapters promote support-bot`
    - `loragate adapters promote support-bot --version 4`
    """
    from loragate.cli.client.aliases import CANARY, show_alias
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant

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
    """Point an alias back at its previous versions. A second rollback undoes the first.

    Example: `loragate adapters rollback support-bot`
    """
    from loragate.cli.client.aliases import show_alias
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        placed = api.call("POST", path("v1", "adapters", name, "rollback"), json={"alias": alias})
    show_alias(placed, as_json=as_json)


def restore(
    name: options.AdapterName,
    version: Annotated[int | None, typer.Option(help="Restore only this version.")] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Restore a deleted adapter, or one deleted version, while the server still stores it.

    Examples:

    - `loragate adapters restore support-bot`
    - `loragate adapters restore support-bot --version 2`
    """
    from loragate.cli.client.http.api import version_path
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        api.call("POST", f"{version_path(name, version)}/restore")
    typer.echo(f"restored {name if version is None else f'{name}:{version}'}")


COMMANDS = (alias, canary, promote, rollback, restore)
