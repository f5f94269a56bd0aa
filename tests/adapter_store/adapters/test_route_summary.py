"""The summary of versions and aliases that lists show equals their tables, after any sequence of operations."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from loragate.adapter_store.adapters.adapter import Adapter, AdapterStatus, AliasTarget
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.database.schema import downgrade, upgrade
from loragate.adapter_store.errors import AdapterInvalid, StoreError
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.tables.adapters import AdapterVersionRow, AliasTargetRow

SHOWN = {"ready", "disabled", "quarantined"}

aliases, versions = st.sampled_from(["default", "canary", "live"]), st.integers(1, 4)
weights = st.dictionaries(versions, st.integers(1, 99), min_size=1, max_size=3)
acts = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 2), aliases),
    st.tuples(st.just("refuse"), st.integers(0, 2), aliases),
    st.tuples(st.just("set_alias"), aliases, weights),
    st.tuples(st.just("delete_alias"), aliases),
    st.tuples(st.just("promote"), aliases, versions),
    st.tuples(st.just("rollback"), aliases),
    st.tuples(st.just("enable_version"), versions, st.booleans()),
    st.tuples(st.just("quarantine"), versions),
    st.tuples(st.just("delete_version"), versions),
    st.tuples(st.just("restore_version"), versions),
    st.tuples(st.just("delete")),
    st.tuples(st.just("restore")),
)
"""Operations of one adapter's life; those that are invalid at the moment are rejected."""


async def _rejecting(tenant_id: str, staged: Any) -> None:
    raise AdapterInvalid("it gives NaN")


async def _act(world: Any, tenant: Any, act: str, *said: Any) -> None:
    if act in ("publish", "refuse"):
        probe = {"probe": _rejecting} if act == "refuse" else {}
        await world.publish("support", tenant=tenant, seed=said[0], alias=said[1], **probe)
        return
    async with world.store.tenant(tenant.id, write=True) as scope:
        match act, said:
            case "set_alias", (alias, targets):
                await scope.adapters.set_alias("support", alias, [AliasTarget(*target) for target in targets.items()])
            case "promote", (alias, version):
                await scope.adapters.promote("support", alias, version=version)
            case "quarantine", (version,):
                await scope.quarantine.take((await scope.adapters.version("support", version)).digest, "damaged")
            case _:
                await getattr(scope.adapters, act)("support", *said)


async def _summary(world: Any, tenant: Any) -> list[Adapter]:
    async with world.store.admin() as admin:
        asked = (AdapterFilter(), AdapterFilter(status=AdapterStatus.DELETED))
        return [each for wanted in asked for each in await admin.published.list(wanted, tenant_id=tenant.id)]


async def _from_tables(world: Any, tenant: Any) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Return by adapter: the latest version, what aliases point at, and the digests of that."""
    latest, routes, routed = dict[str, int](), defaultdict[str, Any](dict), defaultdict[str, Any](dict)
    version, target = AdapterVersionRow, AliasTargetRow
    digests = {}
    async with world.store._database.operator() as session:
        for row in await session.scalars(select(version).where(version.tenant_id == tenant.id)):
            digests[row.adapter_id, row.version] = row.digest
            if row.status in SHOWN and row.deleted_at is None:
                latest[row.adapter_id] = max(row.version, latest.get(row.adapter_id, 0))
        found = select(target).where(target.tenant_id == tenant.id).order_by(target.version)
        for row in await session.scalars(found):
            here = routes[row.adapter_id]
            here[row.alias] = (*here.get(row.alias, ()), AliasTarget(row.version, row.weight))
            routed[row.adapter_id][row.version] = digests[row.adapter_id, row.version]
    return latest, routes, routed


async def _check(world: Any, tenant: Any, acts: Any) -> int:
    reported, (latest, routes, routed) = await _summary(world, tenant), await _from_tables(world, tenant)
    for adapter in reported:
        assert adapter.latest_version == latest.get(adapter.id), acts
        assert adapter.aliases == routes[adapter.id], acts
        assert list(adapter.aliases) == sorted(adapter.aliases)
        assert adapter.routed == routed[adapter.id], acts
    return len(reported)


@settings(max_examples=3)
@given(walk=st.lists(acts, min_size=3, max_size=10))
@example(walk=[("publish", 0, "default"), ("publish", 1, "canary"), ("delete_version", 2), ("delete",), ("restore",)])
@example(walk=[("promote", "default", 1), ("delete_version", 2), ("restore_version", 2)])
@example(walk=[("publish", 0, "default"), ("delete",), ("publish", 0, "live"), ("delete",), ("restore",)])
@example(walk=[("publish", 0, "default"), ("publish", 1, "live"), ("delete_alias", "live"), ("delete_version", 2)])
async def test_any_sequence_of_operations_on_an_adapter(world: Any, walk: list[Any]) -> None:
    async with world.store.admin(write=True) as admin:
        tenant = await admin.tenants.create(new_id("tenant"))
    done: list[Any] = []
    for act in (("publish", 0, "default"), ("publish", 1, "default"), *walk):
        with suppress(StoreError):
            await _act(world, tenant, *act)
        done.append(act)
        assert await _check(world, tenant, done)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(tenant.id)
    await _check(world, tenant, done)


@pytest.mark.migrates
async def test_the_migration_summarizes_existing_adapters(world: Any, database_url: str) -> None:
    for tenant in (world.acme, world.other):
        for seed, alias in ((0, "default"), (1, "default"), (2, "canary")):
            await world.publish("support", tenant=tenant, seed=seed, alias=alias)
        await world.publish("gone", tenant=tenant)
        await _act(world, tenant, "set_alias", "live", {1: 90, 2: 10})
        await _act(world, tenant, "enable_version", 2, False)
        await _act(world, tenant, "delete_alias", "canary")
        await _act(world, tenant, "delete_version", 3)
    async with world.adapters(write=True) as adapters:
        await adapters.delete("gone")
    with pytest.raises(AdapterInvalid):
        await world.publish("unborn", probe=_rejecting)
    before = [await _summary(world, tenant) for tenant in (world.acme, world.other)]
    blob_files = await _stored(world)
    await downgrade(database_url, "0016")
    await upgrade(database_url)
    assert [await _summary(world, tenant) for tenant in (world.acme, world.other)] == before
    assert await _stored(world) == blob_files
    assert await _check(world, world.acme, ()) == 2


async def _stored(world: Any) -> list[Any]:
    """Return the columns as the rows have them."""
    async with world.store._database.operator() as session:
        found = await session.execute(text("SELECT id, latest_version, routes FROM adapters ORDER BY id"))
        return [tuple(row) for row in found]
