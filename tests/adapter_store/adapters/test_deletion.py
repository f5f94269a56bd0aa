from typing import Any

import pytest

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.errors import Conflict, NotFound


@pytest.fixture
async def three_versions(world: Any) -> Any:
    for seed in range(3):
        await world.publish("support", seed=seed)
    return world


async def test_a_version_that_an_alias_targets_cannot_be_deleted(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "canary", [AliasTarget(2), AliasTarget(3)])
        with pytest.raises(Conflict, match="`canary`") as rejected:
            await adapters.delete_version("support", 2)
        assert rejected.value.status == 409
        await adapters.set_alias("support", "canary", [AliasTarget(3)])
        await adapters.delete_version("support", 2)
        assert [version.version for version in await adapters.versions("support")] == [3, 1]
        with pytest.raises(NotFound):
            (await adapters.route("support", version=2)).pick()
        with pytest.raises(NotFound):
            await adapters.delete_version("support", 2)
        with pytest.raises(NotFound):
            await adapters.set_alias("support", "canary", [AliasTarget(2)])


async def test_a_deleted_adapter_disappears_at_once_but_its_bytes_do_not(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        resolved = (await adapters.route("support")).pick()
        await adapters.delete("support")
    async with three_versions.adapters() as adapters:
        assert len(await adapters.list()) == 0
        for wanted in ({}, {"version": 1}):
            with pytest.raises(NotFound):
                (await adapters.route("support", **wanted)).pick()
        for look in (adapters.get("support"), adapters.versions("support"), adapters.version("support", 1)):
            with pytest.raises(NotFound):
                await look
    assert await three_versions.store.open_adapter(three_versions.acme.id, resolved.digest)


async def test_a_name_can_be_used_again_by_another_adapter(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        old = await adapters.get("support")
        await adapters.delete("support")
    published = await three_versions.publish("support")
    assert published.adapter_id != old.id
    async with three_versions.adapters() as adapters:
        assert [version.version for version in await adapters.versions("support")] == [1]


async def test_a_deleted_tenant_takes_its_resources_along(three_versions: Any) -> None:
    store, acme = three_versions.store, three_versions.acme
    async with store.admin(write=True) as admin:
        key = await admin.keys.create(acme.id)
        await admin.tenants.delete(acme.id)
        with pytest.raises(NotFound):
            await admin.tenants.get(acme.id)
        with pytest.raises(NotFound):
            await admin.keys.create(acme.id)
        assert (await admin.keys.get(key.key.id)).revoked_at is not None
        assert (await admin.tenants.create("acme")).id != acme.id
    assert await store.authenticate(key.secret) is None
    async with three_versions.adapters() as adapters:
        assert len(await adapters.list()) == 0
