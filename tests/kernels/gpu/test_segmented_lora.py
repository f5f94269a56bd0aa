"""Segmented LoRA in Triton against its row-by-row reference in float64: in the interpreter, or on a GPU."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_memory import DEVICE
from thinned import thinned

from loragate.kernels.base_output import Affine
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.gpu.slot_tables import SlotTable
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.segmented_lora import lora_reference
from loragate.kernels.segments import DECODE, LONG, PREFILL, Tiling, Work, WorkList, divide, segments_from

IN, WIDTHS = 72, (40, 24, 24)
OUT = sum(WIDTHS)
RANKS = [(8, 8, 8), (16, 16, 16), (64, 1, 24), (0, 40, 0), (256, 0, 8)]
"""By member, of the adapters in slots 0, 1, …; a member of rank 0 is not targeted."""
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.15}
POPULARITY = {
    "identical": lambda rng, rows: [3] * rows,
    "distinct": lambda rng, rows: [row % 5 for row in range(rows)],
    "uniform": lambda rng, rows: [rng.randrange(5) for _ in range(rows)],
    "zipf": lambda rng, rows: [min(int(rng.paretovariate(1.0)), 5) - 1 for _ in range(rows)],
    "skewed": lambda rng, rows: [0] * (rows - 1) + [4],
    "base only": lambda rng, rows: [-1] * rows,
    "half base": lambda rng, rows: [rng.choice([-1, 2]) for _ in range(rows)],
}


def make_weights(slot: int, dtype: torch.dtype, ranks: tuple[int, ...] | None = None) -> LoraWeights:
    """Return random weights; every second adapter has biases over all members, every third a scale too,
    as DoRA does.
    """
    generator = torch.Generator().manual_seed(slot)

    def numbers(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) / 8).to(dtype).to(DEVICE)

    expands, start, out_start = [], 0, 0
    for rank, width in zip(ranks or RANKS[slot], WIDTHS, strict=True):
        if rank:
            expands.append(Expand(start, start + rank, out_start, numbers(rank, width)))
        start, out_start = start + rank, out_start + width
    changes = (Affine(0, numbers(OUT), numbers(OUT) if slot % 3 == 0 else None),) if slot % 2 else ()
    return LoraWeights(numbers(start, IN), tuple(expands), changes)


def make_table(weights: dict[int, LoraWeights]) -> SlotTable:
    dtypes = {each.a.dtype for each in weights.values()}
    table = SlotTable(WIDTHS, IN, dtypes.pop() if dtypes else torch.float32, DEVICE)
    for slot, each in weights.items():
        table.put(slot, each)
    return table


def work(slots: list[int], dtype: torch.dtype = torch.float32) -> WorkList:
    return divide(segments_from(slots), DEVICE, dtype)


def rows_of(count: int, width: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.float32, torch.bfloat16}), ids=str)
@pytest.mark.parametrize("rows", thinned([1, 7, 40], fast={1, 40}))
@pytest.mark.parametrize("popularity", POPULARITY)
def test_equals_the_reference(popularity: str, rows: int, dtype: torch.dtype) -> None:
    slots = sorted(POPULARITY[popularity](random.Random(1), rows))
    weights = {slot: make_weights(slot, dtype) for slot in set(slots) if slot >= 0}
    x, out = rows_of(rows, IN, dtype, 2), rows_of(rows, OUT, dtype, 3)
    expected = lora_reference(out, x, slots, weights)
    add_segments(make_table(weights), out, x, work(slots))
    assert torch.allclose(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    "tiling",
    [Tiling(16, 16, 32, 1, 16, columns=32), Tiling(16, 32, 16, 7, 64), Tiling(32, 64, 128, 2, 32, columns=16), PREFILL],
    ids=str,
)
def test_any_division_of_the_work_computes_the_same(tiling: Tiling) -> None:
    slots = [0, 0, 2, 2, 2, 4]
    weights = {slot: make_weights(slot, torch.float32) for slot in slots}
    x, out = rows_of(6, IN, torch.float32, 2), rows_of(6, OUT, torch.float32, 3)
    expected = lora_reference(out, x, slots, weights)
    add_segments(make_table(weights), out, x, (Work.from_segments(segments_from(slots), DEVICE, tiling),))
    assert torch.allclose(out.double(), expected, atol=1e-4)


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.float32, torch.bfloat16}), ids=str)
def test_prefill_and_decode_in_one_batch(dtype: torch.dtype) -> None:
    slots = [0, 1, 1, 4] + [2] * (LONG + 5) + [-1] * 3 + [0] * LONG
    weights = {slot: make_weights(slot, dtype) for slot in range(5)}
    x, out = rows_of(len(slots), IN, dtype, 2), rows_of(len(slots), OUT, dtype, 3)
    expected = lora_reference(out, x, slots, weights)
    parts = work(slots, dtype)
    assert [part.tiling for part in parts] == ([DECODE] if dtype == torch.float32 else [DECODE, PREFILL])
    add_segments(make_table(weights), out, x, parts)
    assert torch.allclose(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_a_prompts_rows_are_bitwise_the_same_in_any_batch() -> None:
    weights = {slot: make_weights(slot, torch.float16) for slot in range(5)}
    table = make_table(weights)
    slots = [1, 1, 3] + [2] * 70
    x, start = rows_of(73, IN, torch.float16, 5), rows_of(73, OUT, torch.float16, 6)
    together, alone = start.clone(), start[3:].clone()
    add_segments(table, together, x, work(slots, torch.float16))
    add_segments(table, alone, x[3:], work(slots[3:], torch.float16))
    assert torch.equal(alone, together[3:])


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=40).map(sorted))
@settings(max_examples=12)
def test_any_division_into_segments(slots: list[int]) -> None:
    weights = {slot: make_weights(slot, torch.float32) for slot in range(5)}  # slot 5 targets another module
    x, out = rows_of(len(slots), IN, torch.float32, 3), rows_of(len(slots), OUT, torch.float32, 4)
    expected = lora_reference(out, x, slots, weights)
    add_segments(make_table(weights), out, x, work(slots))
    assert torch.allclose(out.double(), expected, atol=1e-4)


def test_a_row_is_bitwise_the_same_alone_and_in_a_batch() -> None:
    """A tenant's tokens must not reveal who else is being served."""
    weights = {slot: make_weights(slot, torch.float32) for slot in range(5)}
    table = make_table(weights)
    slots = [0, 0, 0, 1, 2, 2, 4]
    x, start = rows_of(7, IN, torch.float32, 5), rows_of(7, OUT, torch.float32, 6)
    together = start.clone()
    add_segments(table, together, x, work(slots))
    for row, slot in enumerate(slots):
        alone = start[row : row + 1].clone()
        add_segments(make_table({slot: weights[slot]}), alone, x[row : row + 1], work([slot]))
        assert torch.equal(alone[0], together[row]), row


def product(x: torch.Tensor, y: torch.Tensor, inner: int) -> np.ndarray:
    """Return the product of two tiles of this many inner numbers as the interpreter computes it, filled with zeros."""
    (rows, inputs), columns = x.shape, y.shape[1]
    left, right = np.zeros((16, inner), dtype=np.float32), np.zeros((inner, -(-columns // 16) * 16), dtype=np.float32)
    left[:rows, :inputs], right[:inputs, :columns] = x.numpy(), y.numpy()
    return np.einsum("ik,kj->ij", left, right)[:rows, :columns]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's tensor cores sum in an order of their own")
def test_the_order_of_sums() -> None:
    """Each split adds its blocks of inputs, then the splits are added in order, then the product is added to `out`."""
    inputs, width, rank, rows = 4 * DECODE.block_k + 40, 1100, 8, 3
    tiling = DECODE._replace(splits=2)
    x, out = rows_of(rows, inputs, torch.float32, 1), rows_of(rows, width, torch.float32, 2)
    a, b = rows_of(rank, inputs, torch.float32, 3), rows_of(rank, width, torch.float32, 4)
    sums = np.zeros((tiling.splits, rows, rank), dtype=np.float32)
    for block, start in enumerate(range(0, inputs, tiling.block_k)):
        part = slice(start, start + tiling.block_k)
        split = sums[block % tiling.splits]
        split[:] = product(x[:, part], a.T[part], tiling.block_k) + split
    h = torch.from_numpy(sums[0] + sums[1])
    expected = out.numpy() + np.concatenate([product(h, part, 16) for part in b.split(tiling.block_n, dim=1)], axis=1)
    table = SlotTable((width,), inputs, torch.float32, DEVICE)
    weights = LoraWeights(a, (Expand(0, rank, 0, b),))
    table.put(0, weights)
    add_segments(table, out, x, (Work.from_segments(segments_from([0] * rows), DEVICE, tiling),))
    assert np.array_equal(out.numpy(), expected)


@pytest.mark.parametrize(
    ("widths", "size", "count"), [((128256,), 2048, 63), ((4096, 1024, 1024), 512, 12), ((40,), 512, 1)]
)
def test_a_tile_has_a_bounded_number_of_programs(widths: tuple[int, ...], size: int, count: int) -> None:
    blocks = SlotTable(widths, 16, torch.float32, DEVICE).blocks(DECODE.columns).tolist()
    assert len(blocks) == count
    assert max(stop - start for _, start, stop, _, _ in blocks) == min(size, max(widths))
    columns = [
        column for _, start, stop, begin, end in blocks for column in range(start, stop) if begin <= column < end
    ]
    assert columns == list(range(sum(widths)))


def test_no_program_reads_the_slots_of_a_module_without_adapters() -> None:
    """The number of slots with weights is all that they read."""
    table = make_table({0: make_weights(0, torch.float32)})
    assert table.used.tolist() == [1]
    x, start = torch.ones(2, IN, device=DEVICE), torch.zeros(2, OUT, device=DEVICE)
    table.used.zero_()
    out = start.clone()
    add_segments(table, out, x, work([0, 0]))
    assert torch.equal(out, start)
    table.clear(0)
    assert table.used.tolist() == [0]


def test_vectorized_reads_are_aligned() -> None:
    """The compiler assumes that these sizes are multiples of 16, so adapters must start at such addresses only."""
    table = SlotTable((32, 16), 48, torch.float32, DEVICE)
    assert table.aligned
    assert not SlotTable((32, 8), 48, torch.float32, DEVICE).aligned
    a, b = rows_of(8, 48, torch.float32, 1), rows_of(8, 16, torch.float32, 2)
    weights = {0: LoraWeights(a, (Expand(0, 8, 32, b),), (Affine(0, rows_of(1, 48, torch.float32, 3)[0]),))}
    table.put(0, weights[0])
    x, out = rows_of(3, 48, torch.float32, 4), rows_of(3, 48, torch.float32, 5)
    expected = lora_reference(out, x, [0, 0, -1], weights)
    add_segments(table, out, x, work([0, 0, -1]))
    assert torch.allclose(out.double(), expected, atol=1e-4)
    elsewhere = rows_of(9, 16, torch.float32, 2).flatten()[1 : 1 + 8 * 16].view(8, 16)
    with pytest.raises(AssertionError):
        table.put(1, LoraWeights(a, (Expand(0, 8, 32, elsewhere),)))


def test_nan_in_one_adapter_stays_in_its_rows() -> None:
    weights = {0: make_weights(0, torch.float32), 1: make_weights(1, torch.float32)}
    weights[1].a.fill_(float("nan"))
    out = torch.zeros(4, OUT, device=DEVICE)
    add_segments(make_table(weights), out, torch.ones(4, IN, device=DEVICE), work([0, 0, 1, -1]))
    assert out[:2].isfinite().all()
    assert out[2].isnan().all()
    assert (out[3] == 0).all()


def test_a_reused_slot_computes_the_new_adapter() -> None:
    first, second = make_weights(1, torch.float32), make_weights(3, torch.float32)
    table = make_table({0: first})
    x, start = torch.ones(2, IN, device=DEVICE), torch.zeros(2, OUT, device=DEVICE)
    table.clear(0)
    without = start.clone()
    add_segments(table, without, x, work([0, 0]))
    assert torch.equal(without, start)
    table.put(0, second)
    out = start.clone()
    add_segments(table, out, x, work([0, 0]))
    assert torch.allclose(out.double(), lora_reference(start, x, [0, 0], {0: second}), atol=1e-4)


def test_nothing_to_do() -> None:
    table = make_table({0: make_weights(0, torch.float32)})
    out = torch.ones(3, OUT, device=DEVICE)
    add_segments(table, out, torch.ones(3, IN, device=DEVICE), work([-1, -1, -1]))
    assert (out == 1).all()
