"""`loragate audit`."""

from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from loragate.cli import options

_COLUMNS = ("created_at", "actor", "action", "target", "tenant_id", "before", "after")


def audit(
    tenant: Annotated[str | None, typer.Option(help="Only events about this tenant, by id or name.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only events by this actor: admin_key, oidc:<subject> or api_key:<key id>.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as api_key.revoke or tenant.update.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only events since this time, in this machine's time zone.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="Only events before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of events.")] = 100,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List the changes to tenants, keys and adapters, newest first, with the actor and the values before and after.

    Needs the admin key.

    Examples:

    - `loragate audit`
    - `loragate audit --tenant acme --since 2030-01-01`
    - `loragate audit --action api_key.revoke --limit 1000 --json`
    """
    from loragate.cli.client.http.api import find_tenant
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows

    with as_operator(base_url, admin_key, data_dir) as api:
        events = api.list_all(
            "/admin/v1/audit",
            tenant_id=None if tenant is None else find_tenant(api, tenant)["id"],
            actor=actor,
            action=action,
            since=None if since is None else since.astimezone().isoformat(),
            until=None if until is None else until.astimezone().isoformat(),
        )
        show_rows(islice(events, limit), _COLUMNS, as_json=as_json)
