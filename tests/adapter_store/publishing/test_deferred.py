"""A version that found no engine waits for one: durably, visible to its publisher only, and tried by one process at a
time.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from loragate.adapter_store.adapters.adapter import AliasTarget, VersionStatus
from loragate.adapter_store.errors import AdapterInvalid, Conflict, NotFound, NotTried, Unavailable
from loragate.adapter_store.publishing import deferred
from loragate.adapter_store.publishing import publisher as publications
from loragate.adapter_store.publishing.probe import no_probe
from tests.adapter_store.conftest import HeldProbe

NOW = timedelta(0)


async def _unavailable(tenant_id: str, staged: Any) -> None:
    raise NotTried("the engine is away")


async def _overflowing(tenant_id: str, staged: Any) -> None:
    raise AdapterInvalid("it gives NaN")


async def _failing(tenant_id: str, staged: Any) -> None:
    raise Unavailable("a step failed")


async def _defer(world: Any, *, seed: int = 0, **said: Any) -> Any:
    upload = world.make_upload(seed=seed)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        return await scope.publisher.publish(
            "support", upload.config, upload.file(), **{"probe": _unavailable, "may_wait": True, **said}
        )


async def _due(world: Any) -> Any:
    async with world.store.admin() as admin:
        return await admin.published.next_due()


async def _finish(world: Any, due: Any, probe: Any = no_probe) -> Any:
    async with world.store.tenant(due.tenant_id, write=True) as scope:
        return await scope.publisher.finish(due.adapter_id, due.version, probe)


async def _pending(world: Any, version: int, tenant: Any = None) -> Any:
    async with world.store.tenant((tenant or world.acme).id) as scope:
        return await scope.publisher.awaited("support", version)


async def _actions(world: Any) -> list[str]:
    async with world.store.admin() as admin:
        return [event.action for event in reversed((await admin.audit.list(tenant_id=world.acme.id)).items)]


async def test_a_version_without_an_engine_waits_and_is_ready_after_its_probe(world: Any) -> None:
    waiting = await _defer(world, alias="canary", tags=["b", "a"], description="of haiku")
    assert (waiting.version, waiting.status) == (1, VersionStatus.VERIFYING)
    assert (await _pending(world, 1)).status is VersionStatus.VERIFYING
    async with world.adapters(write=True) as adapters:
        assert len(await adapters.list()) == 0
        with pytest.raises(NotFound):
            await adapters.get("support")
    seen = []

    async def probe(tenant_id: str, staged: Any) -> None:
        seen.append((tenant_id, staged))

    due = await _due(world)
    assert (due.tenant_id, due.weight, due.version) == (world.acme.id, world.acme.weight, 1)
    assert (await _finish(world, due, probe)).status is VersionStatus.READY
    ((tenant_id, staged),) = seen
    assert (tenant_id, staged.digest, staged.base_digest) == (world.acme.id, waiting.digest, waiting.base_digest)
    async with world.adapters() as adapters:
        assert (await adapters.route("support", alias="canary")).pick().version == 1
        said = (await adapters.get("support")).description
    assert (said.tags, said.text) == (("a", "b"), "of haiku")
    assert await _due(world) is None
    assert await _pending(world, 1) is None
    reported = [action for action in await _actions(world) if action.startswith("adapter_version")]
    assert reported == ["adapter_version.defer", "adapter_version.create"]


async def test_an_earlier_use_is_rejected_for_its_tenant_only(world: Any) -> None:
    await world.publish("support", seed=1)
    await _defer(world, seed=2, alias="canary")
    async with world.adapters(write=True) as adapters:
        for use in (adapters.route("support", version=2), adapters.route("support", alias="canary")):
            with pytest.raises(Conflict, match="Version 2 of `support` is still being checked") as rejected:
                await use
            assert rejected.value.code == "adapter_verifying"
        with pytest.raises(Conflict, match="Version 2 is verifying"):
            await adapters.set_alias("support", "x", [AliasTarget(2)])
        assert (await adapters.route("support")).pick().version == 1
    assert await _pending(world, 2, world.other) is None
    async with world.adapters(world.other) as adapters:
        with pytest.raises(NotFound):
            await adapters.route("support", version=2)


async def test_a_rejected_version_has_the_reason_and_frees_its_name(world: Any) -> None:
    await _defer(world)
    rejected = await _finish(world, await _due(world), _overflowing)
    assert (rejected.status, rejected.reason) == (VersionStatus.REJECTED, "it gives NaN")
    reported = await _pending(world, 1)
    assert (reported.status, reported.reason) == (VersionStatus.REJECTED, "it gives NaN")
    assert await _due(world) is None
    assert (await world.store.sweep(NOW)).adapters == 1
    assert (await world.publish("support", seed=2)).version == 1


async def test_the_sweep_keeps_waiting_versions(world: Any) -> None:
    waiting = await _defer(world)
    assert (await world.store.sweep(NOW)).adapters == 0
    await world.store.open_adapter(world.acme.id, waiting.digest)
    assert (await _finish(world, await _due(world))).status is VersionStatus.READY


async def test_one_process_at_a_time_probes(world: Any) -> None:
    await _defer(world)
    due, held = await _due(world), HeldProbe()
    first = asyncio.create_task(_finish(world, due, held))
    await held.asked.wait()
    assert await _due(world) is None
    assert await _finish(world, due, _overflowing) is None
    held.verdict.set()
    assert (await first).status is VersionStatus.READY


async def test_a_process_that_dies_while_probing_blocks_for_a_while_only(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    async def dies(tenant_id: str, staged: Any) -> None:
        raise Died

    monkeypatch.setattr(deferred, "TRY", NOW)
    await _defer(world)
    with pytest.raises(Died):
        await _finish(world, await _due(world), dies)
    assert (await _finish(world, await _due(world))).status is VersionStatus.READY


async def test_an_engine_that_is_unavailable_again_decides_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "_PAUSE", NOW)
    await _defer(world)
    for _ in range(deferred.MAX_ATTEMPTS + 1):
        with pytest.raises(NotTried):
            await _finish(world, await _due(world), _unavailable)
    assert (await _finish(world, await _due(world))).status is VersionStatus.READY


async def test_a_failing_engine_is_retried_a_limited_number_of_times(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publications, "_PAUSE", NOW)
    await _defer(world)
    states = [(await _finish(world, await _due(world), _failing)).status for _ in range(deferred.MAX_ATTEMPTS)]
    assert states == [VersionStatus.VERIFYING] * (deferred.MAX_ATTEMPTS - 1) + [VersionStatus.REJECTED]
    assert (await _pending(world, 1)).reason == "a step failed"


async def test_a_later_version_keeps_the_alias(world: Any) -> None:
    await _defer(world, seed=1)
    assert (await world.publish("support", seed=2)).version == 2
    await _finish(world, await _due(world))
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 2
        assert [version.version for version in await adapters.versions("support")] == [2, 1]


async def test_a_waiting_version_can_be_deleted_and_goes_with_its_adapter(world: Any) -> None:
    await world.publish("support", seed=1)
    await _defer(world, seed=2)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        assert (await scope.publisher.give_up("support", 2)).version == 2
        assert await scope.publisher.give_up("support", 2) is None
        assert await scope.publisher.give_up("support", 1) is None
    assert (await _pending(world, 2)).reason == "its tenant deleted it"
    assert await _due(world) is None
    await _defer(world, seed=3)
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    assert await _finish(world, await _due(world)) is None
    assert await _due(world) is None


async def test_a_publisher_that_may_not_wait_gets_an_error(world: Any) -> None:
    with pytest.raises(NotTried):
        await _defer(world, may_wait=False)
    assert await _due(world) is None
    assert (await _pending(world, 1)).status is VersionStatus.REJECTED


async def test_a_publisher_that_disconnects_meanwhile_leaves_nothing(world: Any) -> None:
    held = HeldProbe()
    publishing = asyncio.create_task(_defer(world, probe=held))
    await held.asked.wait()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert (await _pending(world, 1)).reason == "its publication was interrupted"
    assert (await world.publish("support", seed=2)).version == 1
