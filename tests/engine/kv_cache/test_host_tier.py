"""KV cache blocks in host memory: wherever they are stored, and however many move at once."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loragate.engine.kv_cache import host_tier as kv_host_tier
from loragate.engine.kv_cache.host_tier import KVHostTier, chunk_sizes
from loragate.kernels.kv_cache import LayerCache

BLOCK, BLOCKS, MB = 4, 24, 1 << 20


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
