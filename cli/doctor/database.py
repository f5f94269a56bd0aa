"""The check of the database: reachable, with the current schema, and with enough connections for all processes."""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.backup.restore import last_restoration
from loragate.adapter_store.database.database import MAX_CONNECTIONS, Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import SchemaMismatch, StoreError
from loragate.cli.doctor.finding import Finding, Status, clock_finding, fail, ok, warn
from loragate.cli.settings.model import Settings

_RESERVED = ("superuser_reserved_connections", "reserved_connections")  # the second since Postgres 16
_OTHER_CONNECTIONS = 2  # one of the supervisor, one of a command


def check_database(settings: Settings) -> list[Finding]:
    """Check the database with one connection, within seconds."""
    url = settings.effective_database_url
    kind = url.split(":", 1)[0]
    if kind.startswith("sqlite"):
        sharing = _check_sharing(settings)
        if sharing is not None:
            return [sharing]
        if not_created(settings):
            return [ok("database", "SQLite in the data directory, created at the first start")]
    try:
        return asyncio.run(_check(settings, kind))
    except StoreError as error:
        return [fail("database", error.message, "check LORAGATE_DATABASE_URL and that the database runs")]


def not_created(settings: Settings) -> bool:
    """Return whether the database is the data directory's own, and a first start has yet to create it."""
    return settings.database_url is None and not (settings.data_dir / "loragate.db").exists()


def _check_sharing(settings: Settings) -> Finding | None:
    """Return a finding if SQLite is to be shared: it belongs to one machine, and its writers take turns."""
    if settings.replicas > 1:
        found = f"SQLite, for {settings.replicas} replicas (LORAGATE_REPLICAS)"
        return fail(
            "database", found, "replicas must share one database: set LORAGATE_DATABASE_URL to a Postgres database"
        )
    if settings.workers > 1:
        found = f"SQLite, for {settings.workers} workers (LORAGATE_WORKERS)"
        return warn(
            "database",
            found,
            "their writes take turns: for more throughput, set LORAGATE_DATABASE_URL to a Postgres database",
        )
    return None


@dataclass(frozen=True)
class ConnectionCapacity:
    """Connections of a Postgres server: those that ordinary users may open, and those in use, without this
    command's."""

    max_connections: int
    used: int


async def _check(settings: Settings, kind: str) -> list[Finding]:
    database = Database(settings.effective_database_url)
    try:
        schema = await _schema(database, kind)
        restored = await _restoration(database) if schema.status is Status.OK else []
        if not kind.startswith("postgres"):
            return [schema, *restored]
        async with database.operator() as session:
            ahead = await _seconds_ahead(session)
            capacity = await _connection_capacity(session)
            mode = str((await session.execute(text("SHOW synchronous_commit"))).scalar_one())
    finally:
        await database.close()
    return [
        schema,
        *restored,
        *durability_findings(mode),
        connections_finding(settings, capacity),
        clock_finding("the database", ahead),
    ]


async def _seconds_ahead(session: AsyncSession) -> float:
    began = time.time()
    theirs = (await session.execute(text("SELECT extract(epoch FROM clock_timestamp())"))).scalar_one()
    return float(theirs) - (began + time.time()) / 2


async def _connection_capacity(session: AsyncSession) -> ConnectionCapacity:
    limits = "SELECT name, setting FROM pg_settings WHERE name IN ('max_connections', :one, :other)"
    rows = await session.execute(text(limits), {"one": _RESERVED[0], "other": _RESERVED[1]})
    numbers = {str(name): int(number) for name, number in rows.tuples()}
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    used = int((await session.execute(text(others))).scalar_one())
    return ConnectionCapacity(numbers["max_connections"] - sum(numbers.get(name, 0) for name in _RESERVED), used)


async def _schema(database: Database, kind: str) -> Finding:
    try:
        await require_compatible(database)
    except SchemaMismatch as error:
        return warn("database", error.message, "`loragate serve` upgrades an older schema")
    return ok("database", f"{kind}, schema up to date")


async def _restoration(database: Database) -> list[Finding]:
    """Return a finding if the installation was restored and that is not confirmed."""
    last = await last_restoration(database)
    if last is None or last.confirmed_at is not None:
        return []
    found = f"restored on {_day(last.restored_at)} from the backup of {_day(last.backup_at)}: restored, sweep held"
    return [warn("restore", found, "check what was restored, then `loragate restore --confirm`")]


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def durability_findings(synchronous_commit: str) -> list[Finding]:
    """Judge whether what the server has acknowledged outlives a crash of the database's machine."""
    if synchronous_commit != "off":
        return []
    found = "synchronous_commit is off: a crash of the database undoes the last commits, such as a key's revocation"
    return [warn("durability", found, "set synchronous_commit to on, or ALTER ROLE … SET synchronous_commit = on")]


def connections_finding(settings: Settings, capacity: ConnectionCapacity) -> Finding:
    """Compare the connections that all processes may open with those that the server allows."""
    processes = settings.workers * settings.replicas
    wanted = processes * MAX_CONNECTIONS + _OTHER_CONNECTIONS
    found = (
        f"up to {wanted} needed ({settings.workers} workers × {settings.replicas} replicas × {MAX_CONNECTIONS}, and "
        f"{_OTHER_CONNECTIONS}), {capacity.max_connections} allowed, {capacity.used} in use now"
    )
    if wanted > capacity.max_connections:
        advice = "lower LORAGATE_WORKERS or LORAGATE_REPLICAS, raise max_connections, or use PgBouncer"
        return fail("connections", found, advice)
    if wanted > capacity.max_connections - capacity.used:
        advice = "enough only if those in use belong to loragate: see pg_stat_activity, or raise max_connections"
        return warn("connections", found, advice)
    return ok("connections", found)
