"""`loragate audit …`: the log of changes, its export, and the verification of an export."""

import os
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(invoke_without_command=True)

_SETTLED = timedelta(minutes=1)  # younger events may still be in a transaction
_COLUMNS = ("created_at", "actor", "action", "target", "tenant_id", "before", "after")


@app.callback()
def audit(
    context: typer.Context,
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
    - `loragate audit export audit.jsonl`, then `loragate audit verify audit.jsonl`
    """
    if context.invoked_subcommand is not None:
        return
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


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="Where to write; an earlier export is verified and continued.")],
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Export all events, or those since the last export, as JSON lines in a chain of hashes; print the last hash.

    Note that hash elsewhere: `loragate audit verify FILE --head HASH` shows whether the file still contains it. Events
    of the last minute are left to the next export.

    Example: `loragate audit export /backup/audit.jsonl`
    """
    from loragate.cli.client.audit_chain import Chain, lines_of, verify
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.errors import CliError

    chain = verify(file) if file.exists() else Chain()
    until = (datetime.now(UTC) - _SETTLED).isoformat()
    with as_operator(base_url, admin_key, data_dir) as api:
        events = list(api.list_all("/admin/v1/audit", since=chain.last_moment, until=until))
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8") as output:
            output.writelines(lines_of(chain, events))
            output.flush()
            os.fsync(output.fileno())
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}") from None
    typer.echo(chain.head)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="An export.")],
    head: Annotated[str | None, typer.Option(help="A hash that an export printed: the file must contain it.")] = None,
) -> None:
    """Verify an export: that no line was changed, removed from the middle, or moved.

    Lines cut off at the end show with `--head`, the hash that the last export printed.

    Example: `loragate audit verify audit.jsonl --head 9f86d081…`
    """
    from loragate.cli.client import audit_chain

    chain = audit_chain.verify(file, head)
    typer.echo(f"{chain.events} events, the last hash is {chain.head}")
