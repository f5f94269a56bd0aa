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
    name: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="all, inference, adapters:read, adapters:write, finetune, usage, or admin (not part of all); "
            "may be repeated. [default: all]"
        ),
    ] = None,
    expires_at: Annotated[
        datetime | None, typer.Option(help="When it stops working, in this machine's time zone. [default: never]")
    ] = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create a key and print it alone on stdout. It is shown only now.

    Examples:

    - `KEY=$(loragate keys create acme)`
    - `loragate keys create acme --name ci --scope inference --expires-at 2030-01-01`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.http.paths import path
    from loragate.cli.client.http.tenant_names import find_tenant

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
    """List a tenant's keys, newest first, revoked ones too; never a secret.

    Example: `loragate keys list acme`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.http.paths import path
    from loragate.cli.client.http.tenant_names import find_tenant
    from loragate.cli.client.terminal.output import show_rows

    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "tenants", find_tenant(api, tenant)["id"], "keys")
        show_rows(api.every(where), _COLUMNS, as_json=as_json)


@app.command()
def revoke(
    key_id: KeyId,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Revoke a key; it stops working within seconds.

    Example: `loragate keys revoke 4kXb2mQz9TfA`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.http.paths import path

    with as_operator(base_url, admin_key, data_dir) as api:
        api.call("DELETE", path("admin", "v1", "keys", key_id))
    typer.echo(f"revoked {key_id}")


@app.command()
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[int, typer.Option(help="The old key works this much longer.")] = 0,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Replace a key by a new one with its name, scopes and expiry, and print that one.

    Example: `KEY=$(loragate keys rotate 4kXb2mQz9TfA --grace-seconds 3600)`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.http.paths import path

    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "keys", key_id, "rotate")
        _show_new(api.call("POST", where, json={"grace_seconds": grace_seconds}), as_json)


def _show_new(key: dict[str, str], as_json: bool) -> None:
    from loragate.cli.client.terminal.output import show_json

    if as_json:
        show_json(key)
        return
    typer.echo(f"key {key['id']} of tenant {key['tenant_id']}, shown only now:", err=True)
    typer.echo(key["secret"])
