"""The row layout that a padded step passes to the kernels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loragate.engine.execution.packing import PackedRows
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence, SlotLease
from loragate.kernels.segments import DECODE, PREFILL, UNUSED_SLOT, FixedSegments


def shape(rows: int, sequences: int, dtype: torch.dtype, *, batch_invariant: bool = False) -> PaddedShape:
    sequences = min(rows, sequences)
    return PaddedShape(rows, sequences, sequences, 8, 64, 16, dtype, scratch=0, batch_invariant=batch_invariant)


def step(chunks: list[tuple[int, int]]) -> PackedRows:
    """Return a step of sequences with these token counts and slots, packed: single tokens first, by slot."""
    entries = []
    for slot, tokens in sorted(chunks, key=lambda chunk: (chunk[1] > 1, chunk[0])):
        sequence = Sequence(Request(1, 1, (1,) * tokens, None, SamplingParams(max_tokens=1, seed=0)), 0)
        sequence.places = np.arange(1, tokens + 1)
        sequence.lease = None if slot < 0 else SlotLease(slot, 0)
        entries.append((sequence, tokens))
    return PackedRows.from_entries(entries)


def tiled(shape: PaddedShape, packed: PackedRows) -> list[int]:
    """Return the slot of each row's tile, -1 for rows without a tile."""
    memory = np.empty(shape.numbers, dtype=np.int64)
    shape.fill(memory, packed)
    segments = shape.batch(torch.from_numpy(memory), adapted=True).segments
    assert isinstance(segments, FixedSegments)
    found = [-1] * shape.rows
    for tiles, _ in segments.work:
        for slot, first, rows in tiles.tolist():
            if slot != UNUSED_SLOT:
                assert found[first : first + rows] == [-1] * rows, "two tiles with one row"
                found[first : first + rows] = [slot] * rows
    return found


chunks = st.lists(st.tuples(st.integers(-1, 2), st.sampled_from([1, 1, 1, 2, 15, 40, 64, 70])), min_size=1, max_size=80)


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(chunks, st.sampled_from([(64, 64), (96, 64), (256, 64), (80, 80), (1, 1)]))
def test_every_row_is_in_one_tile_of_its_adapter(
    dtype: torch.dtype, batch_invariant: bool, asked: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    room, wanted = shape(*size, dtype, batch_invariant=batch_invariant), []
    for chunk in asked:
        packed = step([*wanted, chunk])
        if room.takes(packed):
            wanted.append(chunk)
    packed = step(wanted)
    if wanted:
        assert tiled(room, packed)[: packed.rows] == packed.slots


def test_decode_only_steps_skip_prefill_launches() -> None:
    """Each of these launches would have no work, in every linear."""

    def tilings(room: PaddedShape) -> list[object]:
        segments = room.batch(torch.zeros(room.numbers, dtype=torch.int64), adapted=True).segments
        assert isinstance(segments, FixedSegments)
        return [work.tiling for work in segments.work]

    assert PREFILL not in tilings(shape(64, 64, torch.bfloat16))
    assert PREFILL in tilings(shape(96, 64, torch.bfloat16))
    same = step([(1, 1)] * 64)
    assert tiled(shape(64, 64, torch.bfloat16), same) == [1] * 64
    assert [shape(rows, 64, torch.bfloat16).fields["attention_tiles"][0] for rows in (1, 64)] == [0, 0]
    chunk = step([(1, 1), (1, 2)])
    assert [shape(rows, 64, torch.bfloat16).takes(chunk) for rows in (8, 64, 96)] == [False, False, True]
    assert shape(8, 64, torch.bfloat16).takes(step([(1, 1)] * 8))


def test_an_invariant_step_computes_every_row_as_prefill_and_every_adapter_as_decode() -> None:
    """For all chunks that the others leave room for, a row is computed by the same kernels."""
    room = shape(96, 24, torch.bfloat16, batch_invariant=True)
    memory = np.empty(room.numbers, dtype=np.int64)
    room.fill(memory, step([(1, 1)] * 20 + [(2, 70)]))
    fields = room.views(memory)
    assert not fields["lengths"].any()
    covered = [row for first, rows, *_ in fields["attention_tiles"].tolist() for row in range(first, first + rows)]
    assert sorted(covered) == list(range(90))
    segments = room.batch(torch.from_numpy(memory), adapted=True).segments
    assert isinstance(segments, FixedSegments)
    assert [work.tiling for work in segments.work] == [DECODE]


def test_only_existing_pages_are_written() -> None:
    """With long sequences most pages of a padded step are unused; what the memory held there does not matter."""
    room, packed = shape(96, 64, torch.bfloat16), step([(1, 1), (-1, 70)])
    fields = []
    for before in (0, -1):
        memory = np.full(room.numbers, before, dtype=np.int64)
        room.fill(memory, packed)
        fields.append(room.views(memory))
    tables = [each.pop("tables") for each in fields]
    assert all(np.array_equal(fields[0][name], fields[1][name]) for name in fields[0])
    assert tables[1][:2].tolist() == [[0] + [-1] * 7, [0, 1] + [-1] * 6]
    assert (tables[1][2:] == -1).all()


@pytest.mark.parametrize("pages", [1, 7, 8])
def test_pages_take_four_bytes(pages: int) -> None:
    """Tables are most of what a step with long contexts sends."""
    room = replace(shape(96, 64, torch.bfloat16), pages=pages)
    tables = room.views(np.zeros(room.numbers, dtype=np.int64))["tables"]
    assert tables.dtype == np.int32
    assert tables.shape[0] == 64
    assert pages <= tables.shape[1] <= pages + 1
    sent = [room.numbers_for(sequences) * 8 for sequences in (10, 11)]
    assert sent[1] - sent[0] == 4 * tables.shape[1]
    on_device = room.views(torch.zeros(room.numbers, dtype=torch.int64))["tables"]
    assert on_device.dtype == torch.int32
    assert on_device.shape == tables.shape
