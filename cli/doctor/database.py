"""The database: there, with this version's schema, and with room for all our connections."""

import asyncio
import time
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.database import MOST_CONNECTIONS, Database
from loragate.adapter_store.database.schema import require_current
from loragate.adapter_store.errors import SchemaMismatch, StoreError
from loragate.cli.doctor.clock import clock_finding
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.settings.model import Settings

_RESERVED = ("superuser_reserved_connections", "reserved_connections")  # the second since Postgres 16
_OURS_BESIDE = 2  # of the supervisor and of a command


def check_database(settings: Settings) -> list[Finding]:
    """Asked once, within seconds."""
    url = settings.effective_database_url
    kind = url.split(":", 1)[0]
    if kind.startswith("sqlite"):
        sharing = _check_sharing(settings)
        if sharing is not None:
            return [sharing]
        if settings.database_url is None and not (settings.data_dir / "loragate.db").exists():
            return [ok("database", "SQLite in the data directory, made at the first start")]
    try:
        return asyncio.run(_ask(settings, kind))
    except StoreError as error:
        return [fail("database", error.message, "check LORAGATE_DATABASE_URL and that the database runs")]


def _check_sharing(settings: Settings) -> Finding | None:
    """SQLite is one machine's, and its writers take turns."""
    if settings.replicas > 1:
        found = f"SQLite, for {settings.replicas} replicas (LORAGATE_REPLICAS)"
        return fail("database", found, "replicas share one database: set LORAGATE_DATABASE_URL to a Postgres")
    if settings.workers > 1:
        found = f"SQLite, for {settings.workers} workers (LORAGATE_WORKERS)"
        return warn("database", found, "their writes take turns: set LORAGATE_DATABASE_URL to a Postgres for more")
    return None


@dataclass(frozen=True)
class Room:
    """Connections of a Postgres: for everybody but its superusers, and in use by others than this command."""

    most: int
    used: int


async def _ask(settings: Settings, kind: str) -> list[Finding]:
    database = Database(settings.effective_database_url)
    try:
        schema = await _schema(database, kind)
        if not kind.startswith("postgres"):
            return [schema]
        async with database.operator() as session:
            ahead = await _seconds_ahead(session)
            room = await _room(session)
    finally:
        await database.close()
    return [schema, connections_finding(settings, room), clock_finding("the database", ahead)]


async def _seconds_ahead(session: AsyncSession) -> float:
    began = time.time()
    theirs = (await session.execute(text("SELECT extract(epoch FROM clock_timestamp())"))).scalar_one()
    return float(theirs) - (began + time.time()) / 2


async def _room(session: AsyncSession) -> Room:
    limits = "SELECT name, setting FROM pg_settings WHERE name IN ('max_connections', :one, :other)"
    rows = await session.execute(text(limits), {"one": _RESERVED[0], "other": _RESERVED[1]})
    numbers = {str(name): int(number) for name, number in rows.tuples()}
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    used = int((await session.execute(text(others))).scalar_one())
    return Room(numbers["max_connections"] - sum(numbers.get(name, 0) for name in _RESERVED), used)


async def _schema(database: Database, kind: str) -> Finding:
    try:
        await require_current(database)
    except SchemaMismatch as error:
        return warn("database", error.message, "`loragate serve` brings an older one up to date")
    return ok("database", f"{kind}, schema up to date")


def connections_finding(settings: Settings, room: Room) -> Finding:
    """What all our processes may open at once, against what there is."""
    processes = settings.workers * settings.replicas
    wanted = processes * MOST_CONNECTIONS + _OURS_BESIDE
    found = (
        f"up to {wanted} wanted ({settings.workers} workers × {settings.replicas} replicas × {MOST_CONNECTIONS}, and "
        f"{_OURS_BESIDE}), {room.most} allowed, {room.used} in use now"
    )
    if wanted > room.most:
        advice = "lower LORAGATE_WORKERS or LORAGATE_REPLICAS, raise max_connections, or put PgBouncer between"
        return fail("connections", found, advice)
    if wanted > room.most - room.used:
        advice = "enough only if those in use are ours: see pg_stat_activity, or raise max_connections"
        return warn("connections", found, advice)
    return ok("connections", found)
