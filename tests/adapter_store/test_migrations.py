import asyncio
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from loragate.adapter_store.database import Database, create_engine
from loragate.adapter_store.errors import SchemaMismatch
from loragate.adapter_store.schema import downgrade, upgrade
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables import Base
from loragate.adapter_store.urls import driver_url


async def _inspect(database_url: str, look: Any) -> Any:
    engine = create_engine(driver_url(database_url))
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(look)
    finally:
        await engine.dispose()


def _drift(connection: Connection) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": True, "include_name": _is_ours}
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, Base.metadata))


def _is_ours(name: str | None, kind: str, parents: object) -> bool:
    """What searches go by is made by the migration alone."""
    return not str(name).startswith("adapter_search") and name != "ix_adapters_search_text"


def _tables(connection: Connection) -> set[str]:
    return {name for name in inspect(connection).get_table_names() if _is_ours(name, "table", None)}


def _checks(connection: Connection) -> set[str]:
    """Check constraints, which Alembic's comparison does not look at."""
    inspector = inspect(connection)
    return {str(check["name"]) for table in Base.metadata.tables for check in inspector.get_check_constraints(table)}


def _indexes_with_conditions(connection: Connection) -> set[str]:
    inspector = inspect(connection)
    conditions = ("sqlite_where", "postgresql_where")
    return {
        str(index["name"])
        for table in Base.metadata.tables
        for index in inspector.get_indexes(table)
        if any(name in index.get("dialect_options", {}) for name in conditions)
    }


async def test_migrations_and_tables_say_the_same(database_url: str) -> None:
    assert await _inspect(database_url, _drift) == []
    assert await _inspect(database_url, _checks) == {
        "ck_tenants_weight_positive",
        "ck_adapter_versions_version_positive",
        "ck_alias_targets_weight_positive",
    }
    assert await _inspect(database_url, _indexes_with_conditions) == {
        "uq_tenants_alive_name",
        "uq_adapters_alive_name",
        "ix_adapters_keep",
    }


async def test_down_and_up_again(database_url: str) -> None:
    await downgrade(database_url, "base")
    assert await _inspect(database_url, _tables) == {"alembic_version"}
    await upgrade(database_url)
    assert await _inspect(database_url, _tables) == {"alembic_version", *Base.metadata.tables}


async def test_several_upgrades_at_once(empty_database_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_database_url) for _ in range(4)))
    assert await _inspect(empty_database_url, _drift) == []


async def test_a_database_of_the_future_is_left_alone(database_url: str, tmp_path: Any) -> None:
    database = Database(database_url)
    async with database.operator(write=True) as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await database.close()
    with pytest.raises(SchemaMismatch, match="newer"):
        await upgrade(database_url)
    with pytest.raises(SchemaMismatch, match="9999"):
        await Store.open(database_url, str(tmp_path / "blobs"), b"k" * 32)


async def test_a_store_opens_on_the_current_schema_only(empty_database_url: str, tmp_path: Any) -> None:
    with pytest.raises(SchemaMismatch, match="revision none"):
        await Store.open(empty_database_url, str(tmp_path / "blobs"), b"k" * 32)


async def test_a_role_that_may_not_add_the_search_is_told_what_to_do(
    empty_database_url: str, backend: str, request: Any
) -> None:
    if backend != "postgres":
        pytest.skip("about Postgres")
    server = request.getfixturevalue("postgres_server")
    await server.run("DROP ROLE IF EXISTS weak")
    await server.run("CREATE ROLE weak LOGIN")
    engine = create_engine(driver_url(empty_database_url))
    async with engine.begin() as connection:
        await connection.execute(text("GRANT ALL ON SCHEMA public TO weak"))
    weak_url = empty_database_url.replace("postgres@", "weak@")
    with pytest.raises(SchemaMismatch, match="CREATE EXTENSION pg_trgm"):
        await upgrade(weak_url)
    assert await _inspect(weak_url, _tables) == set()
    async with engine.begin() as connection:
        await connection.execute(text("CREATE EXTENSION pg_trgm"))
    await engine.dispose()
    await upgrade(weak_url)
    assert await _inspect(weak_url, _drift) == []
