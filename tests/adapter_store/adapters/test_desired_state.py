"""The adapters that engines should hold, according to SQL."""

from typing import Any

import pytest

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.adapters.desired_state import PlacedVersion, Placement, PlacementBounds
from loragate.adapter_store.errors import Conflict, NotFound


async def _place(world: Any, adapter_id: str, placement: Placement | None, **bounds: int) -> Any:
    async with world.store.admin(write=True) as admin:
        return await admin.desired.place(adapter_id, placement, PlacementBounds(**bounds))


async def _placed(world: Any) -> tuple[PlacedVersion, ...]:
    async with world.store.admin() as admin:
        kept: tuple[PlacedVersion, ...] = await admin.desired.placed()
    return kept


async def test_alias_targets_are_kept_starting_with_the_oldest_adapter(world: Any) -> None:
    first = await world.publish("poet", seed=1)
    second = await world.publish("poet", seed=2, alias="canary")
    foreign = await world.publish("poet", seed=1, tenant=world.other)
    await world.publish("clerk", seed=3)
    await _place(world, foreign.adapter_id, Placement.PREFETCHED)
    blob_files = await _place(world, first.adapter_id, Placement.PINNED)
    assert blob_files.placement == "pinned"
    assert [(each.tenant_id, each.digest, each.placement) for each in await _placed(world)] == [
        (world.acme.id, first.digest, Placement.PINNED),
        (world.acme.id, second.digest, Placement.PINNED),
        (world.other.id, foreign.digest, Placement.PREFETCHED),
    ]
    async with world.adapters(write=True) as adapters:
        await adapters.set_alias("poet", "default", [AliasTarget(2)])
    assert [each.digest for each in await _placed(world)] == [second.digest, foreign.digest]
    async with world.adapters(write=True) as adapters:
        await adapters.delete("poet")
    await _place(world, foreign.adapter_id, None)
    assert await _placed(world) == ()


async def test_pins_and_prefetches_are_limited(world: Any) -> None:
    first, second = await world.publish("a", seed=1), await world.publish("b", seed=2)
    await _place(world, first.adapter_id, Placement.PINNED, on_device=1)
    with pytest.raises(Conflict) as rejected:
        await _place(world, second.adapter_id, Placement.PINNED, on_device=1)
    assert rejected.value.code == "too_many_pins"
    size = first.size_bytes + second.size_bytes
    with pytest.raises(Conflict) as rejected:
        await _place(world, second.adapter_id, Placement.PREFETCHED, on_disk=size - 1)
    assert rejected.value.code == "insufficient_disk"
    await _place(world, second.adapter_id, Placement.PREFETCHED, on_device=1, on_disk=size)
    assert len(await _placed(world)) == 2
    await _place(world, first.adapter_id, None, on_device=0, on_disk=0)
    assert len(await _placed(world)) == 1


@pytest.mark.parametrize("adapter_id", ["ad_nothing", "", "a\0b"])
async def test_what_does_not_exist_cannot_be_placed(world: Any, adapter_id: str) -> None:
    with pytest.raises(NotFound):
        await _place(world, adapter_id, Placement.PREFETCHED)


async def test_contents_are_alive_as_long_as_one_version_of_them(world: Any) -> None:
    first = await world.publish("poet", seed=1)
    await world.publish("twin", seed=1)
    second = await world.publish("poet", seed=2)
    mine, newer = (world.acme.id, first.digest), (world.acme.id, second.digest)
    asked = {mine, newer, (world.other.id, first.digest), (world.acme.id, "sha256:nothing")}
    asked |= {(world.acme.id, f"sha256:{number}") for number in range(1200)}

    async def alive() -> set[tuple[str, str]]:
        async with world.store.admin() as admin:
            found: set[tuple[str, str]] = await admin.desired.living(asked)
        return found

    assert await alive() == {mine, newer}
    async with world.adapters(write=True) as adapters:
        await adapters.delete_version("poet", 1)
    assert await alive() == {mine, newer}, "its twin's"
    async with world.adapters(write=True) as adapters:
        await adapters.delete("twin")
    assert await alive() == {newer}
