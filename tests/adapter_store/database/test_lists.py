from typing import Any

import pytest

from loragate.adapter_store.errors import Conflict, Invalid, NotFound


async def _walk(fetch: Any, cursor: Any) -> list[Any]:
    """Return all items, fetched two at a time."""
    seen: list[Any] = []
    after = None
    while True:
        page = await fetch(after=after, limit=2)
        seen += page.items
        if not page.has_more:
            return seen
        assert len(page) == 2
        after = cursor(page.items[-1])


async def test_adapters_newest_first(world: Any) -> None:
    for number in range(5):
        await world.publish(f"a{number}")
    async with world.adapters() as adapters:
        seen = await _walk(adapters.list, lambda adapter: adapter.id)
    assert [adapter.name for adapter in seen] == ["a4", "a3", "a2", "a1", "a0"]


async def test_a_cursor_outlives_its_item(world: Any) -> None:
    for number in range(3):
        await world.publish(f"a{number}")
    async with world.adapters(write=True) as adapters:
        first = await adapters.list(limit=1)
        await adapters.delete("a2")
        assert [adapter.name for adapter in await adapters.list(after=first.items[0].id)] == ["a1", "a0"]


async def test_items_created_at_the_same_instant_are_listed_once_each(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loragate.adapter_store.tenants import repository as tenants

    monkeypatch.setattr(tenants, "utc_now", lambda: world.acme.created_at)
    async with world.store.admin(write=True) as admin:
        for number in range(5):
            await admin.tenants.create(f"t{number}")
        seen = await _walk(admin.tenants.list, lambda tenant: tenant.id)
    assert sorted(tenant.name for tenant in seen) == ["acme", "other", "t0", "t1", "t2", "t3", "t4"]


async def test_versions_highest_first(world: Any) -> None:
    for seed in range(5):
        await world.publish("support", seed=seed)
    async with world.adapters() as adapters:

        async def fetch(**page: Any) -> Any:
            return await adapters.versions("support", **page)

        seen = await _walk(fetch, lambda version: version.version)
    assert [version.version for version in seen] == [5, 4, 3, 2, 1]


async def test_the_latest_version_is_the_highest_that_is_not_deleted(world: Any) -> None:
    await world.publish("support", seed=1)
    await world.publish("support", seed=2, alias="canary")
    async with world.adapters() as adapters:
        assert (await adapters.get("support")).latest_version == 2


async def test_keys_newest_first(world: Any) -> None:
    async with world.store.admin(write=True) as admin:
        for number in range(3):
            await admin.keys.create(world.acme.id, name=str(number))
        await admin.keys.create(world.other.id, name="foreign")

        async def fetch(**page: Any) -> Any:
            return await admin.keys.list(world.acme.id, **page)

        seen = await _walk(fetch, lambda key: key.id)
    assert [key.name for key in seen] == ["2", "1", "0"]


@pytest.mark.parametrize("after", ["ad_nothing", "", "\0", "\ud800", "x" * 1000])
async def test_an_invented_cursor_is_rejected(world: Any, after: str) -> None:
    async with world.adapters() as adapters:
        with pytest.raises(Invalid) as rejected:
            await adapters.list(after=after)
    assert rejected.value.param == "after"


async def test_another_tenants_id_is_not_a_cursor(world: Any) -> None:
    published = await world.publish("support", tenant=world.other)
    async with world.adapters() as adapters:
        with pytest.raises(Invalid):
            await adapters.list(after=published.adapter_id)


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_limits_are_bounded(world: Any, limit: int) -> None:
    async with world.adapters() as adapters:
        with pytest.raises(Invalid) as rejected:
            await adapters.list(limit=limit)
    assert rejected.value.param == "limit"


async def test_updating_a_tenant_changes_only_given_fields(world: Any) -> None:
    async with world.store.admin(write=True) as admin:
        changed = await admin.tenants.update(world.acme.id, weight=2.5)
        assert (changed.name, changed.weight) == ("acme", 2.5)
        changed = await admin.tenants.update(world.acme.id, name="Acme Corp.")
        assert (changed.name, changed.weight) == ("Acme Corp.", 2.5)
        assert changed.updated_at > world.acme.updated_at
        assert await admin.tenants.get(world.acme.id) == changed
        with pytest.raises(Conflict):
            await admin.tenants.update(world.acme.id, name="other")
        with pytest.raises(Conflict):
            await admin.tenants.create("other")
        with pytest.raises(NotFound):
            await admin.tenants.update("tn_nobody", weight=1.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e9])
async def test_a_weight_is_positive_and_bounded(world: Any, weight: float) -> None:
    async with world.store.admin(write=True) as admin:
        with pytest.raises(Invalid) as rejected:
            await admin.tenants.update(world.acme.id, weight=weight)
    assert rejected.value.param == "weight"


@pytest.mark.parametrize("name", ["", " x", "a\0b", "x" * 101, "\ud800"])
async def test_a_tenants_name_is_checked(world: Any, name: str) -> None:
    async with world.store.admin(write=True) as admin:
        with pytest.raises(Invalid) as rejected:
            await admin.tenants.create(name)
    assert rejected.value.param == "name"
