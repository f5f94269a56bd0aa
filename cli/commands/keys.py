"""`loragate keys …`: tenants' API keys."""

from datetime import datetime
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Create, list, revoke and rotate tenants' API keys.

Needs the admin key. Example: `KEY=$(loragate keys create acme)`
""",
)

_COLUMNS = ("id", "name", "scopes", "expires_at", "revoked_at", "last_used_at", "created_at")
Tenant = Annotated[str, typer.Argument(help="The tenant's id or name.")]
KeyId = Annotated[str, typer.Argument(help="The key's id: the middle part of `lg-<id>-<secret>`.")]


@app.command()
def create(
    tenant: Tenant,
    name: Annotated[str | None, typer.Option(help="The purpose of the key.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="A scope: all, inference, adapters:read, adapters:write, finetune, train, usage, or, not part of all, "
            "export or admin; may be repeated. [default: all]"
        ),
    ] = None,
    expires_at: Annotated[
        datetime | None, typer.Option(help="When the key expires, in this machine's time zone. [default: never]")
    ] = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create a key and print only the key on stdout. It cannot be shown again.

    Examples:

    - `KEY=$(loragate keys create acme)`
    - `loragate keys create acme --name ci --scope inference --expires-at 2030-01-01`
    """
    from loragate.cli.client.http.api import find_tenant, path
    from loragate.cli.client.http.connect import as_operator

    wanted = {
        "name": name,
        "scopes": scope,
        "expires_at": expires_at.astimezone().isoformat() if expires_at else None,
    }
    body = {field: value for field, value in wanted.items() if value is not None}
    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "tenants", find_tenant(api, tenant)["id"], "keys")
        _show_new(api.call("POST", where, json=body), as_json)


@app.command("list")
def list_(
    tenant: Tenant,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List a tenant's keys, including revoked ones, newest first. Secrets are never shown.

    Example: `loragate keys list acme`
    """
    from loragate.cli.client.http.api import find_tenant, path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows

    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "tenants", find_tenant(api, tenant)["id"], "keys")
        show_rows(api.list_all(where), _COLUMNS, as_json=as_json)


@app.command()
def revoke(
    key_id: KeyId,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Revoke a key. It stops working within seconds.

    Example: `loragate keys revoke 4kXb2mQz9TfA`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator

    with as_operator(base_url, admin_key, data_dir) as api:
        api.call("DELETE", path("admin", "v1", "keys", key_id))
    typer.echo(f"revoked {key_id}")


@app.command()
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[int, typer.Option(help="How long the old key keeps working.")] = 0,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Replace a key with a new one that has the same name, scopes and expiry, and print the new key.

    Example: `KEY=$(loragate keys rotate 4kXb2mQz9TfA --grace-seconds 3600)`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator

    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "keys", key_id, "rotate")
        _show_new(api.call("POST", where, json={"grace_seconds": grace_seconds}), as_json)


def _show_new(key: dict[str, str], as_json: bool) -> None:
    from loragate.cli.client.terminal.output import show_json

    if as_json:
        show_json(key)
        return
    typer.echo(f"key {key['id']} of tenant {key['tenant_id']}, shown only once:", err=True)
    typer.echo(key["secret"])
