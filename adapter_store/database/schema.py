"""The schema's versions: Alembic migrations that the program runs itself.

A version runs on its own schema and on newer ones that are compatible with it, so processes of two releases can run at
a time. Each schema records the oldest revision whose code may run on it. A migration that older code cannot live with
raises it by `compatible_from = "<revision>"`; without this line, it stays as it was.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, LargeBinary, column, delete, insert, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.error_mapping import database_faults, is_lock_timeout
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import SchemaMismatch, Unavailable

log = logging.getLogger(__name__)

OUR_MIGRATIONS = str(files("loragate.migrations"))  # in a checkout as in an installed wheel
_MIGRATION_LOCK = 0x6D696772  # any fixed number: Postgres' advisory lock of migrations
_FACTS = table("installation", column("key"), column("value", LargeBinary))
_COMPATIBLE_FROM = "schema_compatible_from"

_Step = Callable[[Connection, Config], None]


@dataclass(frozen=True)
class LockWait:
    """How long a migration on Postgres waits for a table that running transactions use. All others that use the table
    wait behind it, so it gives up after `seconds`, lets them through for `pause` seconds, and starts again."""

    seconds: float = 3.0
    pause: float = 2.0
    attempts: int = 20


async def upgrade(
    database_url: str,
    revision: str = "head",
    *,
    migrations: str = OUR_MIGRATIONS,
    wait: LockWait = LockWait(),
) -> None:
    """Upgrade the database to a revision in one transaction; of several simultaneous processes, one does the work. A
    newer schema that this version can run on stays as it is.

    Raise Invalid for the URL, SchemaMismatch for a database that this version cannot run on, Unavailable, also if
    running transactions do not make room for the migration.
    """

    def step(connection: Connection, config: Config) -> None:
        known = _known(migrations)
        newer = [each for each in _revisions_in(connection) if each not in known]
        if newer:
            _check_newer(newer, _compatible_from(connection), migrations)
        else:
            command.upgrade(config, revision)
            _record_compatibility(connection, migrations)

    await _migrate(database_url, step, migrations, wait)


async def downgrade(database_url: str, revision: str, *, migrations: str = OUR_MIGRATIONS) -> None:
    """Downgrade the database to a revision (`base` for none), with loss of the data of the later ones."""

    def step(connection: Connection, config: Config) -> None:
        command.downgrade(config, revision)
        _record_compatibility(connection, migrations)

    await _migrate(database_url, step, migrations, LockWait())


async def migrate(connection: AsyncConnection, revision: str = "head") -> None:
    """Upgrade to a revision within the caller's transaction, which records its compatibility at its end. Raise
    SchemaMismatch."""
    with _alembic_faults():
        await connection.run_sync(
            _run_alone, lambda _, config: command.upgrade(config, revision), OUR_MIGRATIONS, LockWait()
        )


async def record_compatibility(connection: AsyncConnection) -> None:
    """Record which versions may run on the database's schema."""
    await connection.run_sync(_record_compatibility, OUR_MIGRATIONS)


async def clear(connection: AsyncConnection) -> None:
    """Remove the whole schema with all data, within the caller's transaction. Raise SchemaMismatch."""
    with _alembic_faults():
        await connection.run_sync(
            _run_alone, lambda _, config: command.downgrade(config, "base"), OUR_MIGRATIONS, LockWait()
        )


def check_known(revision: str) -> None:
    """Raise SchemaMismatch for a revision of a newer version of this program."""
    if revision not in _known(OUR_MIGRATIONS):
        raise SchemaMismatch(f"A newer version made the schema's revision {revision}: use that version.")


async def require_compatible(database: Database, *, migrations: str = OUR_MIGRATIONS) -> None:
    """Raise SchemaMismatch unless this version can run on the database's schema: its own, or a newer one that is
    compatible with it."""
    async with database.operator() as session:
        connection = await session.connection()
        found = await connection.run_sync(_revisions_in)
        if found == (newest_revision(migrations),):
            return
        if found and not _known(migrations).issuperset(found):
            _check_newer(found, await connection.run_sync(_compatible_from), migrations)
            return
    raise SchemaMismatch(
        f"The database's schema is at revision {', '.join(found) or 'none'}; this version needs "
        f"{newest_revision(migrations)}. Upgrade the database first, or start the version that created it."
    )


def newest_revision(migrations: str = OUR_MIGRATIONS) -> str:
    """Return the revision of this version's own schema."""
    return str(_scripts(migrations).get_current_head())


def _check_newer(found: Collection[str], oldest: str | None, migrations: str) -> None:
    """Raise SchemaMismatch unless the newer schema says that this version may run on it."""
    if oldest not in _known(migrations):
        raise SchemaMismatch(
            f"A newer version upgraded the schema to revision {', '.join(found)}, which needs a version that "
            f"knows revision {oldest or ', '.join(found)}. This one knows those up to {newest_revision(migrations)}: "
            "start the newer version."
        )


async def _migrate(database_url: str, step: _Step, migrations: str, wait: LockWait) -> None:
    engine = create_engine(driver_url(database_url))
    try:
        for attempt in range(1, wait.attempts + 1):
            try:
                with database_faults(), _alembic_faults():
                    async with engine.begin() as connection:
                        await connection.run_sync(_run_alone, step, migrations, wait)
                return
            except DBAPIError as error:
                if not is_lock_timeout(error):
                    raise
            log.warning("the schema's upgrade waits for transactions that run (attempt %d)", attempt)
            await asyncio.sleep(wait.pause)
    finally:
        await engine.dispose()
    raise Unavailable(
        "The schema was not upgraded, because transactions that run use its tables all the time. Nothing was changed. "
        "End long transactions (see pg_stat_activity), and start again."
    )


@contextmanager
def _alembic_faults() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise SchemaMismatch(f"The database cannot be migrated: {error}.") from error


def _run_alone(connection: Connection, step: _Step, migrations: str, wait: LockWait) -> None:
    _lock(connection, wait)
    config = _config(migrations)
    config.attributes["connection"] = connection
    step(connection, config)


def _lock(connection: Connection, wait: LockWait) -> None:
    """Migrate as the only process; on SQLite, BEGIN IMMEDIATE already ensures this."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        timeout = {"timeout": f"{round(1000 * wait.seconds)}ms"}
        connection.execute(text("SELECT set_config('lock_timeout', :timeout, true)"), timeout)


def _record_compatibility(connection: Connection, migrations: str) -> None:
    """Record in the database which versions may run on it, for those that do not know its revision."""
    if not inspect(connection).has_table(_FACTS.name):
        return
    connection.execute(delete(_FACTS).where(_FACTS.c.key == _COMPATIBLE_FROM))
    [revision] = _revisions_in(connection)
    value = _declared(migrations, revision).encode()
    connection.execute(insert(_FACTS).values(key=_COMPATIBLE_FROM, value=value))


def _declared(migrations: str, revision: str) -> str:
    """Return the oldest revision whose code may run on the schema of `revision`: as the last migration said that says
    it, else only its own."""
    for script in _scripts(migrations).walk_revisions("base", revision):
        declared = getattr(script.module, "compatible_from", None)
        if declared is not None:
            return str(declared)
    return revision


def _compatible_from(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_FACTS.name):
        return None
    found = connection.scalar(select(_FACTS.c.value).where(_FACTS.c.key == _COMPATIBLE_FROM))
    return None if found is None else bytes(found).decode()


def _revisions_in(connection: Connection) -> tuple[str, ...]:
    return MigrationContext.configure(connection).get_current_heads()


def _config(migrations: str) -> Config:
    config = Config()
    config.set_main_option("script_location", migrations.replace("%", "%%"))
    return config


@cache
def _scripts(migrations: str) -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(migrations))


@cache
def _known(migrations: str) -> frozenset[str]:
    """Return all revisions of this version; reads all migrations."""
    return frozenset(script.revision for script in _scripts(migrations).walk_revisions())
