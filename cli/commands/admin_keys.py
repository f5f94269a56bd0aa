"""`loragate admin-keys …`: keys of operators and of programs that do their work."""

from datetime import datetime
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Create, list and revoke named admin keys.

Each operator or program can have one, with an expiry. Needs an admin key.
Example: `KEY=$(loragate admin-keys create "deploy pipeline")`
""",
)

_COLUMNS = ("id", "name", "expires_at", "revoked_at", "last_used_at", "created_at")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The person or program that will have the key.")],
    expires_at: Annotated[
        datetime | None, typer.Option(help="When the key expires, in this machine's time zone. [default: never]")
    ] = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create an admin key and print only the key on stdout. It cannot be shown again.

    Example: `KEY=$(loragate admin-keys create alice --expires-at 2030-01-01)`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_json

    expiry = {"expires_at": expires_at.astimezone().isoformat()} if expires_at else {}
    with as_operator(base_url, admin_key, data_dir) as api:
        new = api.call("POST", path("admin", "v1", "admin-keys"), json={"name": name} | expiry)
    if as_json:
        show_json(new)
        return
    typer.echo(f"admin key {new['id']}, shown only once:", err=True)
    typer.echo(new["secret"])


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List named admin keys, including revoked ones, newest first. Secrets are never shown.

    Example: `loragate admin-keys list`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows

    with as_operator(base_url, admin_key, data_dir) as api:
        show_rows(api.list_all(path("admin", "v1", "admin-keys")), _COLUMNS, as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id: the middle part of `lg-<id>-<secret>`.")],
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Revoke an admin key. It stops working within seconds.

    Example: `loragate admin-keys revoke 4kXb2mQz9TfA`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator

    with as_operator(base_url, admin_key, data_dir) as api:
        api.call("DELETE", path("admin", "v1", "admin-keys", key_id))
    typer.echo(f"revoked {key_id}")
