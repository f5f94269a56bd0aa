"""Tenant scope by construction: a session that sees, changes and adds one tenant's rows only.

Two mechanisms, the second of which does not trust the first:

1. Every ORM statement of a `TenantSession` gets `tenant_id = <its tenant>` for every tenant-owned table, in
   subqueries and joins too; every INSERT gets the value. Repositories therefore never mention the tenant.
   Statements that are made once and used by all tenants are about bare tables: the ORM leaves them alone, and
   loragate.adapter_store.database.scoped_statements holds them to their tenant when they are made.
2. Just before a statement reaches the driver, `check_sql_scope` reads the SQL that is really sent and raises
   unless each tenant-owned table in it carries that predicate with that tenant. This catches what the ORM
   does not see: statements on bare tables, text, raw driver SQL.

A write scope also locks its tenant's row first. On Postgres this makes the writers of one tenant take turns,
as SQLite's BEGIN IMMEDIATE does for all, and it fails when the tenant has been deleted.
"""

import re
from functools import lru_cache

from sqlalchemy import Connection, Engine, ExecutionContext, Insert, event, select
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import ORMExecuteState, Session, SessionTransaction, with_loader_criteria

from loragate.adapter_store.database.scoped_statements import UnscopedStatement, reject_unscoped
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.tables.base import Base, TenantOwned
from loragate.adapter_store.tables.tenants import TenantRow

# Execution options of a session and so of its connection.
WRITE = "loragate_write"  # bool
TENANT = "loragate_tenant"  # the tenant's id

_OWNED = sorted(str(mapper.local_table) for mapper in Base.registry.mappers if issubclass(mapper.class_, TenantOwned))
# A table's name where it is not the qualifier of a column: after FROM, JOIN, UPDATE, INTO, a comma.
_USE = re.compile(rf"(?<![\w.])({'|'.join(_OWNED)})(?![\w.])(?: AS (\w+))?")
_PREDICATE = r"(?<![\w.]){}\.tenant_id = (?:\?|\$\d)"


class TenantSession(Session):
    """The synchronous side of an AsyncSession whose execution options name its TENANT."""


@event.listens_for(TenantSession, "after_begin")
def _lock_tenant(session: TenantSession, transaction: SessionTransaction, connection: Connection) -> None:
    options = session.execution_options
    if options[WRITE]:
        alive = select(TenantRow.id).where(TenantRow.id == options[TENANT], TenantRow.deleted_at.is_(None))
        if connection.execute(alive.with_for_update(key_share=True)).first() is None:
            raise NotFound("The tenant does not exist.")


@event.listens_for(TenantSession, "do_orm_execute")
def _add_tenant(state: ORMExecuteState) -> None:
    tenant_id = state.session.execution_options[TENANT]
    if isinstance(state.statement, Insert):
        state.statement = state.statement.values(tenant_id=tenant_id)
    elif state.is_orm_statement:
        # A closure variable of this lambda becomes a bound parameter, so that the compiled SQL is shared.
        criteria = with_loader_criteria(TenantOwned, lambda row: row.tenant_id == tenant_id, include_aliases=True)
        state.statement = state.statement.options(criteria)
    else:
        reject_unscoped(state.statement)


def tenant_of(session: AsyncSession) -> str | None:
    """Return the id of the session's tenant; None for the operator's sessions."""
    tenant_id: str | None = session.sync_session.execution_options.get(TENANT)
    return tenant_id


def guard(engine: Engine) -> None:
    """Install the check of every statement of this engine's scopes."""
    event.listen(engine, "before_cursor_execute", check_sql_scope)


def check_sql_scope(
    connection: Connection,
    cursor: object,
    statement: str,
    parameters: object,
    context: ExecutionContext | None,
    executemany: bool,
) -> None:
    """Raise UnscopedStatement for a write in a read scope, or a statement that could touch another tenant's rows."""
    options = connection.get_execution_options()
    assert isinstance(context, DefaultExecutionContext)
    if not options.get(WRITE, False) and (context.isinsert or context.isupdate or context.isdelete):
        raise UnscopedStatement("a read scope cannot write; open the scope with write=True")
    tenant_id = options.get(TENANT)
    if tenant_id is None:
        return
    if context.compiled is None:
        raise UnscopedStatement("a tenant's scope runs no raw SQL")
    values = [
        value for row in context.compiled_parameters for name, value in row.items() if name.startswith("tenant_id")
    ]
    if any(value != tenant_id for value in values):
        raise UnscopedStatement("the statement names another tenant, not its scope's")
    if not (values if context.isinsert else _is_filtered(statement)):
        raise UnscopedStatement(f"the statement is not limited to its tenant: {statement}")


@lru_cache(maxsize=1024)
def _is_filtered(statement: str) -> bool:
    """Return whether every use of a tenant-owned table has `<its alias>.tenant_id = <a parameter>`."""
    return all(
        re.search(_PREDICATE.format(alias or table), statement) is not None for table, alias in _USE.findall(statement)
    )
