"""Promotion, rollback, restoration, and disabled adapters."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from loragate.adapter_store.adapters.adapter import AdapterStatus, AliasTarget, VersionStatus
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.errors import Conflict, Forbidden, Invalid, NotFound
from loragate.adapter_store.store import Store
from tests.adapter_store.conftest import SECRET_KEY

DELETED = AdapterFilter(status=AdapterStatus.DELETED)


@pytest.fixture
async def three_versions(world: Any) -> Any:
    for seed in range(3):
        await world.publish("support", seed=seed)
    return world


async def _actions(world: Any) -> list[str]:
    async with world.store.admin() as admin:
        return [event.action for event in await admin.audit.list(limit=100)][::-1]


async def test_promote_and_rollback_are_one_call_each_and_audited(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        split = [AliasTarget(1, 90), AliasTarget(2, 10)]
        await adapters.set_alias("support", "default", split)
        assert await adapters.promote("support", "default", version=2) == (AliasTarget(2),)
        assert await adapters.rollback("support", "default") == tuple(split)
        assert (await adapters.aliases("support"))["default"] == tuple(split)
        assert await adapters.rollback("support", "default") == (AliasTarget(2),)
        assert (await adapters.route("support")).pick().version == 2
    assert (await _actions(three_versions))[-4:] == ["alias.set", "alias.promote", "alias.rollback", "alias.rollback"]


async def test_a_move_is_visible_as_a_whole_or_not_at_all(three_versions: Any) -> None:
    """If a later statement fails, nothing remains of the move, not even in the audit log."""
    split = (AliasTarget(1, 90), AliasTarget(2, 10))

    async def seen() -> tuple[Any, Any]:
        async with three_versions.adapters() as reading:
            route = await reading.route("support")
            return (await reading.aliases("support"))["default"], [
                (target.adapter.version, target.weight) for target in route.targets
            ]

    async with three_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "default", split)
    async with three_versions.adapters(write=True) as adapters:
        await adapters.promote("support", "default", version=3)
        assert await seen() == (split, [(1, 90), (2, 10)])
    assert await seen() == ((AliasTarget(3),), [(3, 1)])
    with suppress(RuntimeError):
        async with three_versions.adapters(write=True) as adapters:
            await adapters.rollback("support", "default")
            raise RuntimeError
    assert await seen() == ((AliasTarget(3),), [(3, 1)])
    assert (await _actions(three_versions))[-2:] == ["alias.set", "alias.promote"]


async def test_an_uploads_change_to_an_alias_is_rolled_back(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        assert await adapters.rollback("support", "default") == (AliasTarget(2),)


async def test_moving_an_alias_to_its_own_target_loses_no_history(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.promote("support", "default", version=1)
        await adapters.promote("support", "default", version=1)
        assert await adapters.rollback("support", "default") == (AliasTarget(3),)


async def test_a_canary_is_promoted_by_its_alias(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "canary", [AliasTarget(2)])
        assert await adapters.promote("support", "default", from_alias="canary") == (AliasTarget(2),)
        await adapters.set_alias("support", "canary", [AliasTarget(1), AliasTarget(2)])
        with pytest.raises(Invalid) as several:
            await adapters.promote("support", "default", from_alias="canary")
        assert several.value.param == "from_alias"
        with pytest.raises(NotFound):
            await adapters.promote("support", "default", from_alias="unknown")


async def test_a_rollback_needs_an_earlier_target(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "canary", [AliasTarget(2)])
        with pytest.raises(Conflict) as first:
            await adapters.rollback("support", "canary")
        with pytest.raises(NotFound):
            await adapters.rollback("support", "unknown")
    assert first.value.code == "nothing_to_roll_back"


async def test_a_rollback_to_an_unservable_version_changes_nothing(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.delete_version("support", 2)
        with pytest.raises(Conflict, match="Version 2 does not exist"):
            await adapters.rollback("support", "default")
        await adapters.restore_version("support", 2)
        await adapters.enable_version("support", 2, False)
        with pytest.raises(Conflict, match="disabled"):
            await adapters.rollback("support", "default")
        assert (await adapters.aliases("support"))["default"] == (AliasTarget(3),)


async def test_a_disabled_versions_share_goes_to_the_others(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "live", [AliasTarget(v, w) for v, w in ((1, 2), (2, 1), (3, 1))])
        before = [(await adapters.route("support", alias="live")).pick(draw=step / 80).version for step in range(80)]
        disabled = await adapters.enable_version("support", 1, False)
        route = await adapters.route("support", alias="live")
        after = [route.pick(draw=step / 80).version for step in range(80)]
        with pytest.raises(Forbidden) as rejected:
            (await adapters.route("support", version=1)).pick()
        assert (rejected.value.status, rejected.value.code) == (403, "adapter_disabled")
        assert (await adapters.enable_version("support", 1, True)).status is VersionStatus.READY
        assert (await adapters.route("support", version=1)).pick().version == 1
    assert disabled.status is VersionStatus.DISABLED
    assert [before.count(version) for version in (1, 2, 3)] == [40, 20, 20]
    assert [after.count(version) for version in (1, 2, 3)] == [0, 40, 40]
    # the other targets do not change
    assert all(was == now for was, now in zip(before, after, strict=True) if was != 1)
    assert (await _actions(three_versions))[-2:] == ["adapter_version.disable", "adapter_version.enable"]


async def test_a_disabled_adapter_rejects_every_way_to_request_it(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        assert (await adapters.update("support", enabled=False)).status is AdapterStatus.DISABLED
        for wanted in ({}, {"version": 1}):
            with pytest.raises(Forbidden):
                (await adapters.route("support", **wanted)).pick()
        assert (await adapters.update("support", enabled=True)).status is AdapterStatus.READY
        assert (await adapters.route("support")).pick().version == 3
    assert (await _actions(three_versions))[-2:] == ["adapter.update", "adapter.update"]


async def test_a_deleted_adapter_is_restored_as_it_was(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.delete_version("support", 1)
        await adapters.set_alias("support", "canary", [AliasTarget(2), AliasTarget(3)])
        was = await adapters.get("support")
        await adapters.delete("support")
        assert len(await adapters.list()) == 0
        (gone,) = await adapters.list(DELETED)
        assert (gone.id, gone.status) == (was.id, AdapterStatus.DELETED)
    assert (await three_versions.store.sweep(timedelta(0))).adapters == 0
    async with three_versions.adapters(write=True) as adapters:
        back = await adapters.restore("support")
        assert (back.id, back.aliases, back.status) == (was.id, was.aliases, AdapterStatus.READY)
        assert [version.version for version in await adapters.versions("support")] == [3, 2]  # 1 was deleted before
        assert len(await adapters.list(DELETED)) == 0
        digest = (await adapters.route("support")).pick().digest
    assert await three_versions.store.open_adapter(three_versions.acme.id, digest)
    assert (await _actions(three_versions))[-2:] == ["adapter.delete", "adapter.restore"]


async def test_a_name_that_was_taken_meanwhile_is_not_taken_back(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.delete("support")
    await three_versions.publish("support")
    async with three_versions.adapters(write=True) as adapters:
        with pytest.raises(Conflict) as rejected:
            await adapters.restore("support")
        assert rejected.value.code == "name_taken"
        await adapters.delete("support")
        assert (await adapters.restore("support")).latest_version == 1  # the one that had the name last


async def test_a_deleted_version_is_restored(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.delete_version("support", 1)
        (gone,) = await adapters.versions("support", status=VersionStatus.DELETED)
        assert (gone.version, gone.status) == (1, VersionStatus.DELETED)
        assert (await adapters.restore_version("support", 1)).status is VersionStatus.READY
        assert (await adapters.route("support", version=1)).pick().version == 1
        with pytest.raises(NotFound):
            await adapters.restore_version("support", 1)
    assert (await _actions(three_versions))[-1] == "adapter_version.restore"


async def test_nothing_is_restored_after_the_grace_period(
    three_versions: Any, database_url: str, blob_url: str
) -> None:
    hasty = await Store.open(database_url, blob_url, SECRET_KEY, retention=timedelta(0))
    try:
        async with hasty.tenant(three_versions.acme.id, write=True) as scope:
            await scope.adapters.delete_version("support", 1)
            with pytest.raises(Conflict) as version:
                await scope.adapters.restore_version("support", 1)
            await scope.adapters.delete("support")
            with pytest.raises(Conflict) as adapter:
                await scope.adapters.restore("support")
        assert version.value.code == adapter.value.code == "restore_expired"
        assert (await hasty.sweep(timedelta(0))).adapters == 3
    finally:
        await hasty.close()


async def test_restored_versions_count_against_the_quota(three_versions: Any) -> None:
    async with three_versions.adapters(write=True) as adapters:
        await adapters.delete("support")
    await three_versions.publish("other")
    async with three_versions.store.admin(write=True) as admin:
        await admin.tenants.update(three_versions.acme.id, limits={"max_adapters": 1})
    with pytest.raises(Conflict) as rejected:
        async with three_versions.adapters(write=True) as adapters:
            await adapters.restore("support")
    assert rejected.value.code == "quota_exceeded"
    async with three_versions.adapters() as adapters:
        assert [adapter.name for adapter in await adapters.list()] == ["other"]


async def test_ranks_are_a_quota_too(world: Any) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(world.acme.id, limits={"max_adapter_rank": 4})
    with pytest.raises(Conflict, match="max_adapter_rank") as rejected:
        await world.publish("support", rank=8)
    assert rejected.value.code == "quota_exceeded"
    assert (await world.publish("support", rank=4)).version == 1
