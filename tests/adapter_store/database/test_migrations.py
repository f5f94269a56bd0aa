import asyncio
from datetime import timedelta
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text, update

from loragate.adapter_store.adapters.adapter import AliasTarget, VersionStatus
from loragate.adapter_store.adapters.desired_state import Placement, PlacementBounds
from loragate.adapter_store.adapters.lineage import UPLOADED
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.schema import downgrade, upgrade
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import AdapterInvalid, Conflict, NotFound, NotTried, SchemaMismatch
from loragate.adapter_store.idempotency import StoredResponse
from loragate.adapter_store.imports.rows import IDLE_TIMEOUT, INTERRUPTED
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.adapters import AdapterImportRow
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.record import UsageRecord, usage_id_at
from loragate.adapter_store.usage.service_quality import Reason, ServiceQuery

pytestmark = pytest.mark.migrates


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
    """Return False for the search index, which the migration alone creates."""
    return not str(name).startswith("adapter_search") and name != "ix_adapters_search_text"


def _tables(connection: Connection) -> set[str]:
    return {name for name in inspect(connection).get_table_names() if _is_ours(name, "table", None)}


def _checks(connection: Connection) -> set[str]:
    """Return check constraints, which Alembic's comparison ignores."""
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


async def test_migrations_and_tables_agree(database_url: str) -> None:
    assert await _inspect(database_url, _drift) == []
    assert await _inspect(database_url, _checks) == {
        "ck_tenants_weight_positive",
        "ck_adapter_versions_version_positive",
        "ck_alias_targets_weight_positive",
    }
    assert await _inspect(database_url, _indexes_with_conditions) == {
        "uq_tenants_alive_name",
        "uq_adapters_alive_name",
        "ix_adapters_placement",
        "ix_adapter_imports_updated_at",
    }


async def test_downgrade_and_upgrade_again(database_url: str) -> None:
    await downgrade(database_url, "base")
    assert await _inspect(database_url, _tables) == {"alembic_version"}
    await upgrade(database_url)
    assert await _inspect(database_url, _tables) == {"alembic_version", *Base.metadata.tables}


async def test_concurrent_upgrades(empty_database_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_database_url) for _ in range(4)))
    assert await _inspect(empty_database_url, _drift) == []


async def test_a_database_of_a_newer_release_is_not_changed(database_url: str, tmp_path: Any) -> None:
    database = Database(database_url)
    async with database.operator(write=True) as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        await session.execute(text("DELETE FROM installation WHERE key = 'schema_compatible_from'"))
    await database.close()
    with pytest.raises(SchemaMismatch, match=r"newer version .* knows revision 9999"):
        await upgrade(database_url)
    with pytest.raises(SchemaMismatch, match="9999"):
        await Store.open(database_url, str(tmp_path / "blobs"), b"k" * 32)


async def test_a_store_opens_on_no_older_schema(empty_database_url: str, tmp_path: Any) -> None:
    with pytest.raises(SchemaMismatch, match="revision none"):
        await Store.open(empty_database_url, str(tmp_path / "blobs"), b"k" * 32)


async def test_a_role_that_may_not_create_the_search_index_gets_advice(
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


async def _none_here(tenant_id: str, staged: Any) -> None:
    raise NotTried("the engine is away")


async def _overflowing(tenant_id: str, staged: Any) -> None:
    raise AdapterInvalid("it gives NaN")


@pytest.fixture
async def from_older_schema(world: Any, database_url: str) -> Any:
    """Create versions in all states, as a schema without states stored them."""
    for seed in (1, 2):
        await world.publish("support", seed=seed)
    with pytest.raises(AdapterInvalid):
        await world.publish("support", seed=3, probe=_overflowing)
    for name in ("support", "unborn"):
        upload = world.make_upload(seed=4)
        async with world.store.tenant(world.acme.id, write=True) as scope:
            await scope.publisher.publish(name, upload.config, upload.file(), probe=_none_here, may_wait=True)
    await world.publish("poet", seed=5, tags=["a"])
    async with world.adapters(write=True) as adapters:
        await adapters.set_alias("support", "split", [AliasTarget(1, 90), AliasTarget(2, 10)])
        await adapters.enable_version("support", 1, False)
        await adapters.update("poet", enabled=False)
    await downgrade(database_url, "0006")
    return world


async def test_the_schema_without_states_sees_only_servable_versions(from_older_schema: Any, database_url: str) -> None:
    alive = "SELECT a.name, v.version, v.status FROM adapter_versions v JOIN adapters a ON a.id = v.adapter_id {}"
    here = alive.format("WHERE v.deleted_at IS NULL AND a.deleted_at IS NULL ORDER BY a.name, v.version")

    def look(connection: Connection) -> list[Any]:
        return [tuple(row) for row in connection.execute(text(here))]

    found = await _inspect(database_url, look)
    assert found == [("poet", 1, "ready"), ("support", 1, "ready"), ("support", 2, "ready")]


async def test_adapters_of_the_schema_without_states_continue_to_work(
    from_older_schema: Any, database_url: str
) -> None:
    await upgrade(database_url)
    assert await _inspect(database_url, _drift) == []
    async with from_older_schema.adapters(write=True) as adapters:
        assert sorted(adapter.name for adapter in await adapters.list()) == ["poet", "support"]
        for adapter in await adapters.list():
            assert adapter.status == "ready"
        versions = list(await adapters.versions("support"))
        assert [(each.version, each.status, each.lineage) for each in versions] == [
            (2, VersionStatus.READY, UPLOADED),
            (1, VersionStatus.READY, UPLOADED),
        ]
        assert (await adapters.route("support")).pick().version == 2
        assert (await adapters.aliases("support"))["split"] == (AliasTarget(1, 90), AliasTarget(2, 10))
        with pytest.raises(Conflict, match="nothing to roll back to"):
            await adapters.rollback("support", "split")
        for version in (3, 4):
            with pytest.raises(Conflict, match="no longer kept"):
                await adapters.restore_version("support", version)
        with pytest.raises(NotFound):
            await adapters.get("unborn")
        await adapters.delete("poet")
        assert (await adapters.restore("poet")).latest_version == 1
    assert (await from_older_schema.publish("support", seed=6)).version == 5
    assert (await from_older_schema.publish("unborn", seed=7)).version == 1


async def test_renamed_tables_and_columns_keep_their_rows(world: Any, database_url: str) -> None:
    hour = utc_now().replace(minute=0, second=0, microsecond=0)
    adapters = [await world.publish(name, seed=seed) for seed, name in enumerate(("poet", "clerk"))]
    record = UsageRecord(
        id=f"{usage_id_at(hour)}x",
        request_id="req",
        tenant_id=world.acme.id,
        key_id="key",
        endpoint="chat",
        base_model="base",
        started_at=hour,
        ttft_ms=17,
    )
    async with world.store.admin(write=True) as admin:
        for adapter, placement in zip(adapters, (Placement.PINNED, Placement.PREFETCHED), strict=True):
            await admin.desired.place(adapter.adapter_id, placement, PlacementBounds())
        rejections = {(world.acme.id, hour, Reason.LIMIT): 3, (world.acme.id, hour, Reason.OVERLOAD): 5}
        await admin.settlement.add_rejections(rejections)
        await admin.settlement.settle([record])
        claim = await admin.idempotency.claim("key", b"request")
        await admin.idempotency.complete(claim, StoredResponse(201, b"made"))
    service = ServiceQuery(hour, hour + timedelta(hours=1))

    async def seen() -> Any:
        async with world.store.admin(write=True) as admin:
            placed = {(each.digest, each.placement) for each in await admin.desired.placed()}
            reply = await admin.idempotency.claim("key", b"request")
        async with world.store.tenant(world.acme.id) as scope:
            return placed, reply, await scope.usage.service(service)

    before = await seen()
    assert (len(before[0]), before[1], before[2].first_token.p50) == (2, StoredResponse(201, b"made"), 17)
    await downgrade(database_url, "0017")

    def look(connection: Connection) -> list[list[Any]]:
        queries = (
            "SELECT keep FROM adapters ORDER BY keep",
            "SELECT reason, requests FROM turned_away ORDER BY requests",
            "SELECT first_token_ms FROM usage_records",
            "SELECT status FROM replies",
        )
        return [[tuple(row) for row in connection.execute(text(query))] for query in queries]

    assert await _inspect(database_url, look) == [
        [("device",), ("disk",)],
        [("over_limit", 3), ("overloaded", 5)],
        [(17,)],
        [(201,)],
    ]
    await upgrade(database_url)
    assert await _inspect(database_url, _drift) == []
    assert await seen() == before


async def test_imports_of_older_releases_are_shown_as_they_were(world: Any, database_url: str) -> None:
    """Who requested them, and with what token, is not known."""
    async with world.store.tenant(world.acme.id, write=True) as scope:
        begun = await scope.imports.create("hf://acme/poet@" + "0" * 40, "poet", None)
    await downgrade(database_url, "0015")
    await upgrade(database_url)
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterImportRow).values(updated_at=begun.updated_at - IDLE_TIMEOUT))
    async with world.store.tenant(world.acme.id, write=True) as scope:
        assert (await scope.imports.get(begun.id)).error == INTERRUPTED
        assert await scope.import_lease.take(begun.id) is None
        assert (await scope.imports.get(begun.id)).error == INTERRUPTED
