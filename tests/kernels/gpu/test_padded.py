"""Launches for a batch of fixed size, most of it unused, against launches for the exact batch: bitwise equal, in the
interpreter or on a GPU.
"""

import random

import pytest
import torch
from attention import DIM, HEADS, KV_HEADS, PLACES, filled_cache, options_on
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels import gpu, segmented_experts
from loragate.kernels.attention_rows import DecodeRows, PaddedRows, PrefillRows
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.gpu import decode_attention as decode
from loragate.kernels.gpu import prefill_attention as prefill
from loragate.kernels.gpu.grouped_experts import ExpertSlots, route_on_device
from loragate.kernels.gpu.segmented_lora import add_segments, programs_per_tile
from loragate.kernels.gpu.slot_tables import SlotMemory, SlotTable
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.paged_attention import padded_attention
from loragate.kernels.segmented_lora import join_slot_tables
from loragate.kernels.segments import (
    DECODE,
    PREFILL,
    UNUSED_SLOT,
    FixedSegments,
    Tiling,
    Work,
    by_tiling,
    cut_into_tiles,
    divide,
    segments_from,
)

PAGE = 8
LENGTHS, CHUNKS = [40, 1, 61, 33], [1, 1, 5, 20]
"""Two sequences that decode, then two chunks of prefill behind some context."""
ROWS = 40


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


@pytest.fixture(params=["kernels", "torch"])
def computed_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(gpu, "serves", lambda device: False)
    monkeypatch.setattr(prefill, "QUERIES", 16)
    return str(request.param)


def cache_on_device() -> tuple[LayerCache, list[Tensor]]:
    """Return a cache with keys and values of four sequences, and their places."""
    plain, places, _, _ = filled_cache(LENGTHS, block=PAGE)
    cache = LayerCache(PLACES, KV_HEADS, DIM, DIM, torch.float32, DEVICE)
    cache.keys.copy_(plain.keys)
    cache.values.copy_(plain.values)
    return cache, places


@pytest.mark.parametrize("variant", ["plain", "all"])
def test_attention_of_a_step_without_prefill(variant: str, computed_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is not set to zero beforehand is zero in unused rows; there is room for more sequences than rows."""
    options, (cache, places) = options_on(DEVICE, variant), cache_on_device()
    tables, lengths = torch.zeros(6, 10, dtype=torch.int32), torch.tensor([40, 0, 61, 0, 0, 0])
    for index in (0, 2):
        pages = places[index][::PAGE] // PAGE
        tables[index, : len(pages)] = pages
    owners = torch.arange(4)
    made = (tables, lengths, torch.zeros(0, 4, dtype=torch.int64), owners, (lengths[:4] - 1).clamp(min=0))
    query = numbers(HEADS, 4, DIM)
    empty = torch.empty
    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", lambda *shape, **options: empty(*shape, **options).fill_(-7))
        rows = PaddedRows(*(tensor.to(DEVICE) for tensor in made), PAGE, 16)
        found = padded_attention(query, cache, rows, options)
    table = torch.zeros(2, 64, dtype=torch.int64)
    for row, index in enumerate((0, 2)):
        table[row, : LENGTHS[index]] = places[index]
    alone = DecodeRows(table.to(DEVICE), torch.tensor([40, 61], device=DEVICE))
    same(found[:, ::2], decode.decode_attention(query[:, ::2].contiguous(), cache, alone, options), computed_by)
    if computed_by == "kernels":
        assert not found[:, 1::2].any()


@pytest.mark.parametrize("variant", thinned(["plain", "all"], fast={"all"}))
def test_attention(variant: str, computed_by: str) -> None:
    options, (cache, places) = options_on(DEVICE, variant), cache_on_device()
    query = numbers(HEADS, ROWS, DIM)
    found = padded_attention(query, cache, padded(places), options)
    assert found.isfinite().all()
    table = torch.zeros(2, 48, dtype=torch.int64)
    for row in range(2):
        table[row, : LENGTHS[row]] = places[row]
    rows = DecodeRows(table.to(DEVICE), torch.tensor(LENGTHS[:2], device=DEVICE))
    expected = [decode.decode_attention(query[:, :2], cache, rows, options)]
    start = 2
    for mine, length, chunk in list(zip(places, LENGTHS, CHUNKS, strict=True))[2:]:
        one = PrefillRows(start, start + chunk, length - chunk, mine.to(DEVICE))
        expected.append(prefill.prefill_attention(query[:, start : start + chunk], cache, one, options))
        start += chunk
    same(found[:, :start], torch.cat(expected, dim=1), computed_by)


def padded(places: list[Tensor]) -> PaddedRows:
    """Return a batch with room for six sequences, and spare tiles."""
    tables, lengths = torch.zeros(6, 10, dtype=torch.int32), torch.zeros(6, dtype=torch.int64)
    owners, positions = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, dtype=torch.int64)
    tiles, row = [], 0
    for index, (mine, length, chunk) in enumerate(zip(places, LENGTHS, CHUNKS, strict=True)):
        pages = mine[::PAGE] // PAGE
        tables[index, : len(pages)] = pages
        owners[row : row + chunk] = index
        positions[row : row + chunk] = torch.arange(length - chunk, length)
        if chunk == 1:
            lengths[index] = length
        else:
            tiles += [(row + i, min(16, chunk - i), length - chunk + i, index) for i in range(0, chunk, 16)]
        row += chunk
    tiles += [(0, 0, 0, 0)] * 4
    made = (tables, lengths, torch.tensor(tiles), owners, positions)
    return PaddedRows(*(tensor.to(DEVICE) for tensor in made), PAGE, 16)


def same(found: Tensor, expected: Tensor, computed_by: str) -> None:
    if computed_by == "kernels":
        assert torch.equal(found, expected)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def fixed(slots: list[int], rows: int, dtype: torch.dtype) -> FixedSegments:
    """Return a batch with room for this many rows."""
    by_row = torch.full((rows,), -1)
    by_row[: len(slots)] = torch.tensor(slots)
    works = []
    for tiling, segments in by_tiling(segments_from(slots), dtype).items():
        tiles = [*cut_into_tiles(segments, tiling.rows), *[(UNUSED_SLOT, 0, 0)] * 5]
        works.append(Work(torch.tensor(tiles).to(DEVICE), tiling))
    return FixedSegments(by_row.to(DEVICE), tuple(works))


def test_lora_of_small_and_large_ranks() -> None:
    """The tables have room for more slots, and for larger ranks, than there are."""
    slots = [-1, 0, 0, 1, 2] + [1] * 70
    ranks = {0: 8, 1: 300, 2: 40}
    weights = {
        slot: LoraWeights(numbers(2 * r, 24), (Expand(0, r, 0, numbers(r, 24)), Expand(r, 2 * r, 24, numbers(r, 8))))
        for slot, r in ranks.items()
    }
    plain, reserved = (SlotTable((24, 8), 24, torch.float32, DEVICE) for _ in range(2))
    reserved.reserve(5, 700)
    for slot, each in weights.items():
        plain.put(slot, each)
        reserved.put(slot, each)
    x, out = numbers(80, 24), numbers(80, 32)
    expected = out.clone()
    add_segments(plain, expected[: len(slots)], x[: len(slots)], divide(segments_from(slots), DEVICE, torch.float32))
    add_segments(reserved, out, x, fixed(slots, 80, torch.float32).work)
    assert torch.equal(out, expected)


def test_a_launch_is_the_same_for_all_adapters() -> None:
    """No argument of a captured launch changes when adapters come and go."""
    table = SlotTable((24, 8), 24, torch.float32, DEVICE)
    table.reserve(5, 64)
    at = table._fields.data_ptr()
    for slot in (4, 0, 3):
        table.put(slot, LoraWeights(numbers(4, 24), (Expand(0, 4, 0, numbers(4, 24)),)))
    table.clear(4)
    assert table._fields.data_ptr() == at
    with pytest.raises(AssertionError, match="where it is"):
        table.put(5, LoraWeights(numbers(4, 24), (Expand(0, 4, 0, numbers(4, 24)),)))


def test_tables_side_by_side_change_when_they_are_sent() -> None:
    """What several modules know of an adapter is sent together; until then launches read the previous tables."""
    ranks, kept = {0: 8, 1: 3}, []
    slots, x, start = [0, 0, 1], numbers(3, 24), numbers(3, 32)
    own, shared = ([SlotTable((24, 8), 24, torch.float32, DEVICE) for _ in range(3)] for _ in range(2))
    for table in shared:
        table.reserve(2, 16)
    memory = SlotMemory(2, shared, DEVICE)
    for i, (mine, theirs) in enumerate(zip(own, shared, strict=True)):
        for slot, rank in ranks.items():
            factors = LoraWeights(numbers(rank, 24) + i, (Expand(0, rank, 0, numbers(rank, 24)),))
            kept.append(factors)  # by address
            mine.put(slot, factors)
            theirs.put(slot, factors)

    def computed(tables: list[SlotTable]) -> list[Tensor]:
        outs = [start.clone() for _ in tables]
        for table, out in zip(tables, outs, strict=True):
            add_segments(table, out, x, divide(segments_from(slots), DEVICE, torch.float32))
        return outs

    assert all(torch.equal(out, start) for out in computed(shared))
    memory.send()
    assert memory.used.tolist() == [2, 2, 2]
    assert all(torch.equal(a, b) for a, b in zip(computed(shared), computed(own), strict=True))
    for tables in (own, shared):
        tables[1].clear(0)
    memory.send()
    assert memory.used.tolist() == [2, 1, 2]
    found = computed(shared)
    assert all(torch.equal(a, b) for a, b in zip(found, computed(own), strict=True))
    assert torch.equal(found[1][:2], start[:2])
    assert {table._fields.data_ptr() % 16 for table in shared} == {0}


@pytest.mark.parametrize(("tiles", "chunks"), [(0, 1), (1, 48), (4, 48), (256, 1), (256, 48), (4096, 48)])
def test_shrink_launches_as_many_programs_as_are_useful(tiles: int, chunks: int) -> None:
    found = programs_per_tile(tiles, chunks)
    assert 1 <= found <= chunks
    assert found >= min(chunks, 4)
    assert found == chunks or tiles * found <= 1024 or found == 4


def test_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_experts, "route", None)
    slots, rows = [-1, 0, 0, 2, 2], 8
    rng = random.Random(0)
    chosen = torch.tensor([rng.sample(range(4), 2) for _ in range(rows)]).to(DEVICE)
    table = ExpertSlots(4, 16, 8, numbers(1))
    table.reserve(3, 8)
    factors = {slot: ExpertFactors(numbers(4, rank, 16), numbers(4, rank, 8)) for slot, rank in ((0, 4), (2, 8))}
    for slot, each in factors.items():
        table.put(slot, each)
    found, expected = numbers(2 * rows, 8), numbers(2 * rows, 8)
    x = numbers(rows, 16)
    for out, segments in ((found, fixed(slots, rows, torch.float32)), (expected, segments_from(slots))):
        order, tiles = route_on_device(chosen, segments, 4, 16, 3)
        routed = out[order].clone()
        table.add(routed, x[order // 2], tiles.by_adapter)
        out[order] = routed
    assert torch.equal(found, expected)
    assert not torch.equal(found, numbers(2 * rows, 8))


def test_tables_of_experts_are_sent_together() -> None:
    """Registering or clearing an adapter changes nothing on the device until all modules' tables are sent in one copy
    for each kind of module."""
    own, joined = ([ExpertSlots(4, 16, 8, numbers(1)) for _ in range(2)] for _ in range(2))
    linear = SlotTable((8,), 16, torch.float32, DEVICE)
    for each in (*joined, linear):
        each.reserve(3, 8)
    send = join_slot_tables([linear, *(experts.table for experts in joined)], 3)
    kept = [ExpertFactors(numbers(4, 4, 16) + i, numbers(4, 4, 8)) for i in range(4)]
    for experts in (own, joined):
        for i, factors in enumerate(kept):
            experts[i % 2].put(i // 2 + 1, factors)

    def fields(tables: list[ExpertSlots]) -> list[list[list[int]]]:
        return [table.table.fields.tolist() for table in tables]

    assert not any(experts.table.fields.any() for experts in joined)
    send()
    assert fields(joined) == fields(own)
    assert [experts.table.used.tolist() for experts in joined] == [[2], [2]]
    for experts in (own, joined):
        experts[1].clear(2)
    send()
    assert fields(joined) == fields(own)
    assert not own[1].table.fields[8:].any()
    assert [experts.table.used.tolist() for experts in joined] == [[2], [1]]
    assert len({experts.table.fields.untyped_storage().data_ptr() for experts in joined}) == 1


@pytest.mark.parametrize("tiling", [DECODE, PREFILL])
def test_unused_tiles_change_nothing(tiling: Tiling) -> None:
    table = SlotTable((24,), 24, torch.float16, DEVICE)
    table.reserve(2, 16)
    out = numbers(64, 24).half()
    before = out.clone()
    add_segments(table, out, numbers(64, 24).half(), (Work(torch.full((7, 3), UNUSED_SLOT).to(DEVICE), tiling),))
    assert torch.equal(out, before)
