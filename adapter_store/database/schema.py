"""The schema's versions: Alembic migrations that the program runs itself."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.error_mapping import database_faults
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import SchemaMismatch

_MIGRATION_LOCK = 0x6D696772  # any fixed number: Postgres' advisory lock of migrations


async def upgrade(database_url: str, revision: str = "head") -> None:
    """Upgrade the database to a revision in one transaction; of several simultaneous processes, one does the work.

    Raise Invalid for the URL, SchemaMismatch for a database that this version does not know, Unavailable.
    """
    await _migrate(database_url, lambda config: command.upgrade(config, revision))


async def downgrade(database_url: str, revision: str) -> None:
    """Downgrade the database to a revision (`base` for none), with loss of the data of the later ones."""
    await _migrate(database_url, lambda config: command.downgrade(config, revision))


async def require_current(database: Database) -> None:
    """Raise SchemaMismatch unless the database has exactly this version's schema."""
    async with database.operator() as session:
        connection = await session.connection()
        found = await connection.run_sync(_revisions_in)
    wanted = _heads()
    if set(found) != set(wanted):
        raise SchemaMismatch(
            f"The database's schema is at revision {', '.join(found) or 'none'}; this version needs "
            f"{', '.join(wanted)}. Upgrade the database first, or start the version that created it."
        )


async def _migrate(database_url: str, step: Callable[[Config], None]) -> None:
    engine = create_engine(driver_url(database_url))
    try:
        with database_faults():
            async with engine.begin() as connection:
                await connection.run_sync(_run_alone, step)
    except CommandError as error:
        raise SchemaMismatch(
            f"The database cannot be migrated, perhaps because a newer version created it: {error}."
        ) from error
    finally:
        await engine.dispose()


def _run_alone(connection: Connection, step: Callable[[Config], None]) -> None:
    """Run the step under a lock; on SQLite, BEGIN IMMEDIATE already is one."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    config = _config()
    config.attributes["connection"] = connection
    step(config)


def _config() -> Config:
    """Return the configuration; the package locates it, in a checkout as in an installed wheel."""
    config = Config()
    config.set_main_option("script_location", str(files("loragate.migrations")).replace("%", "%%"))
    return config


@cache
def _heads() -> tuple[str, ...]:
    """Return the newest revisions of this version; reads all migrations."""
    return tuple(ScriptDirectory.from_config(_config()).get_heads())


def _revisions_in(connection: Connection) -> tuple[str, ...]:
    return MigrationContext.configure(connection).get_current_heads()
