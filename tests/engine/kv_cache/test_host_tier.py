"""KV cache blocks in host memory: wherever they are stored, however many move at once, and however late."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from deferred_device import DeferredDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loragate.engine.kv_cache import host_tier as kv_host_tier
from loragate.engine.kv_cache.host_tier import KVHostTier, chunk_sizes
from loragate.kernels.kv_cache import LayerCache

BLOCK, BLOCKS, MB = 4, 24, 1 << 20


class DeferredTier(KVHostTier):
    """A tier on a device that executes late. Slots and blocks hold numbers of their own, which steps read and write."""

    def __init__(self, device: DeferredDevice, slots: int, at_once: int) -> None:
        self.cache = LayerCache((BLOCKS + 1) * BLOCK, 1, 2, 2, torch.float32, torch.device("cpu"))
        block_bytes = self.cache.numbers_per_place * BLOCK * 4
        super().__init__([self.cache], BLOCK, slots * block_bytes, device.computes, device.copies)
        self._at_once = at_once
        self._device = device

    def _gather(self, rows: Tensor, blocks: Sequence[int]) -> None:
        self._device.computes.launch(lambda: KVHostTier._gather(self, rows, blocks))

    def _scatter(self, rows: Tensor, blocks: Sequence[int]) -> None:
        self._device.computes.launch(lambda: KVHostTier._scatter(self, rows, blocks))

    def write(self, block: int, number: int) -> None:
        """Launch a step that writes a block."""
        self._device.computes.launch(lambda: self._part(block).fill_(number))

    def check(self, block: int, number: int) -> None:
        """Launch a step that reads a block."""

        def read() -> None:
            assert (self._part(block) == number).all(), f"a step found something else in block {block}"

        self._device.computes.launch(read)

    def _part(self, block: int) -> Tensor:
        return self.cache.keys[:, block * BLOCK : (block + 1) * BLOCK]


@given(
    at_once=st.integers(1, 4),
    rng=st.randoms(use_true_random=False),
    actions=st.lists(st.tuples(st.sampled_from(["save", "save", "load", "load", "advance"]), st.integers(1, 5))),
)
@settings(max_examples=100)
def test_steps_find_their_blocks_however_late_copies_are(
    at_once: int, rng: random.Random, actions: list[tuple[str, int]]
) -> None:
    """Every step writes and reads the blocks that it was scheduled with; a slot or block is used again at once."""
    device = DeferredDevice(rng)
    tier = DeferredTier(device, 8, at_once)
    saved: list[tuple[int, int]] = []  # slots, and the numbers in them
    numbers = iter(range(1, 1000))
    for action, count in actions:
        if action == "save" and count <= tier.free:
            blocks = rng.sample(range(1, BLOCKS), count)
            written = [next(numbers) for _ in blocks]
            for block, number in zip(blocks, written, strict=True):
                tier.write(block, number)
            saved += zip(tier.save(blocks), written, strict=True)
            for block in blocks:
                tier.write(block, 0)
        elif action == "load" and count <= len(saved):
            rng.shuffle(saved)
            blocks = rng.sample(range(1, BLOCKS), count)
            loaded, saved = saved[:count], saved[count:]
            tier.load([slot for slot, _ in loaded], blocks)
            for block, (_, number) in zip(blocks, loaded, strict=True):
                tier.check(block, number)
        elif action == "advance":
            for _ in range(count):
                device.advance()
    while device.advance():
        pass


def test_steps_wait_for_no_copy_to_the_host() -> None:
    """A save leaves the steps behind it to run, and a load is copied before the steps ahead of it are over."""
    device = DeferredDevice(random.Random(0))
    tier = DeferredTier(device, 8, 2)
    slots = tier.save([1, 2])
    tier.check(1, 0)
    while device.computes.ready:
        device.computes.resume()
    assert not device.computes.pending, "the step waits for the save"
    while device.advance():
        pass
    tier.write(1, 7)
    tier.load(slots, [3, 4])
    while device.copies.ready:
        device.copies.resume()
    assert not device.copies.pending, "the load waits for the step"


@pytest.fixture
def caches() -> list[LayerCache]:
    made = [LayerCache((BLOCKS + 1) * BLOCK, 2, 3, 5, torch.float32, torch.device("cpu")) for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    for cache in made:
        for part in (cache.keys, cache.values):
            part[:, BLOCK:] = torch.randn(part[:, BLOCK:].shape, generator=generator)
    return made


def contents(caches: list[LayerCache], blocks: list[int]) -> list[Tensor]:
    places = [block * BLOCK + i for block in blocks for i in range(BLOCK)]
    return [part[:, places].clone() for cache in caches for part in cache.stored]


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("parts", [[12], [5, 5, 2]])
def test_blocks_return_unchanged(
    caches: list[LayerCache], parts: list[int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few at a time: the blocks of a long prompt take as much memory as a GPU has left for steps."""

    def in_parts(_budget: int, _block_bytes: int, width: int, dtype: torch.dtype) -> Iterator[Tensor]:
        yield from (torch.empty(blocks, width, dtype=dtype) for blocks in parts)

    monkeypatch.setattr(kv_host_tier, "_unlocked", in_parts)
    moved: list[int] = []
    read = LayerCache.read_blocks
    monkeypatch.setattr(LayerCache, "read_blocks", lambda *a: (moved.append(a[2]), read(*a))[1])
    block_bytes = 2 * 2 * BLOCK * (3 + 5) * 4
    monkeypatch.setattr(kv_host_tier, "_MOVE_CHUNK_BYTES", at_once * block_bytes + 1)
    tier = KVHostTier(caches, BLOCK, 0)
    assert tier.total == tier.free == 12
    source, target = list(range(1, 12)), list(range(13, 24))
    before = contents(caches, source)
    slots = tier.save(source)
    assert sorted(slots) == sorted(set(slots))
    assert tier.used == 11
    assert max(moved) == min(at_once, 11)
    for cache in caches:
        cache.keys[:, BLOCK:] = cache.values[:, BLOCK:] = 7.0
    tier.load(slots, target)
    assert all(torch.equal(a, b) for a, b in zip(contents(caches, target), before, strict=True))
    assert tier.used == 0


@given(budget=st.integers(0, 1 << 36), block=st.integers(1, 1 << 26))
def test_locked_memory_keeps_to_its_budget(budget: int, block: int) -> None:
    """torch rounds every allocation up to a power of two."""
    blocks = list(chunk_sizes(budget, block))
    assert sum(1 << (n * block - 1).bit_length() for n in blocks) <= budget
    if budget > 1 << 30 and block < 1 << 24:
        assert sum(blocks) * block > 0.9 * budget, "nearly all of it is used"


def test_memory_that_cannot_be_locked_is_used_unlocked(
    caches: list[LayerCache], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    empty = torch.empty
    left = [2]

    def rejecting(*shape: int, pin_memory: bool = False, **options: Any) -> Tensor:
        assert pin_memory
        if not left[0]:
            raise RuntimeError("CUDA error: out of memory")
        left[0] -= 1
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", rejecting)
    parts = list(kv_host_tier._locked(700 * MB, MB, 4, torch.uint8))
    assert [part.shape[0] for part in parts] == [256, 256]
    assert "not all of 700 MB" in caplog.text
