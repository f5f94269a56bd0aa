"""`loragate responses …`: a tenant's stored responses."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""List, export and delete the responses that a server stores for a tenant.

Needs a tenant's key. Example: `loragate responses list`, then `loragate responses delete resp_5d41`
""",
)

_COLUMNS = ("id", "status", "model", "bytes", "created_at", "expires_at")
_STORE = "/v1/response_store"
ResponseId = Annotated[str, typer.Argument(help="The response's id.")]


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List stored responses without their contents, newest first.

    Example: `loragate responses list --json`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.list_all("/v1/responses"), _COLUMNS, as_json=as_json)


@app.command()
def show(
    response_id: ResponseId,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Print a response as JSON.

    Example: `loragate responses show resp_5d41`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json

    with as_tenant(base_url, api_key, data_dir) as api:
        show_json(api.call("GET", path("v1", "responses", response_id)))


@app.command()
def cancel(
    response_id: ResponseId,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Cancel a response that runs in the background, and print its state.

    Example: `loragate responses cancel resp_5d41`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        typer.echo(api.call("POST", path("v1", "responses", response_id, "cancel"))["status"])


@app.command()
def delete(
    response_id: ResponseId,
    yes: options.Yes = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Delete a response, and the items that it added to a conversation. This cannot be undone.

    Example: `loragate responses delete resp_5d41 --yes`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant

    if not yes:
        typer.confirm(f"Delete {response_id}?", abort=True, err=True)
    with as_tenant(base_url, api_key, data_dir) as api:
        typer.echo(api.call("DELETE", path("v1", "responses", response_id))["id"])


@app.command("delete-user")
def delete_user(
    name: Annotated[str, typer.Argument(help="The value of `user` in the requests.")],
    safety_identifier: Annotated[
        bool, typer.Option("--safety-identifier", help="The name is a value of `safety_identifier`.")
    ] = False,
    yes: options.Yes = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Delete all responses of one of the tenant's users. Prints how many. This cannot be undone.

    Example: `loragate responses delete-user ann --yes`
    """
    from loragate.cli.client.http.connect import as_tenant

    if not yes:
        typer.confirm(f"Delete everything of {name}?", abort=True, err=True)
    kind = "safety_identifier" if safety_identifier else "user"
    with as_tenant(base_url, api_key, data_dir) as api:
        typer.echo(api.call("DELETE", _STORE, params={kind: name})["deleted"])


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file for the lines, which must not exist.")],
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Download all stored responses and conversations as JSON lines.

    Example: `loragate responses export stored.jsonl`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.download import fetch
    from loragate.cli.errors import BAD_SETTING, CliError

    if file.exists():
        raise CliError(f"{file} exists already: choose another name", BAD_SETTING)
    with as_tenant(base_url, api_key, data_dir) as api:
        fetch(api, f"{_STORE}/export", file)
        typer.echo(file)


@app.command()
def status(
    default: Annotated[
        bool | None,
        typer.Option("--by-default/--on-request", help="Whether to store responses of requests without `store`."),
    ] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Print how much is stored, and whether responses are stored by default, as JSON. A key with the scope `admin`
    changes the default.

    Examples:

    - `loragate responses status`
    - `loragate responses status --by-default --api-key lg-…`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json

    with as_tenant(base_url, api_key, data_dir) as api:
        if default is None:
            show_json(api.call("GET", _STORE))
        else:
            show_json(api.call("PATCH", _STORE, json={"store_by_default": default}))
