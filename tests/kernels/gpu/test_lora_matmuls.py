"""Long segments by torch's matmuls beside short ones by the kernels: in the interpreter, or on a GPU."""

from typing import Any

import pytest
import torch
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels import segmented_lora
from loragate.kernels.base_output import Affine, Dense
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.segmented_lora import LoraOptions, LoraTable, lora_reference
from loragate.kernels.segments import Segment, WorkList, segments_from

IN, WIDTHS = 32, (40, 24, 24)
OUT = sum(WIDTHS)
RANKS = [(8, 8, 8), (4, 0, 64), (16, 16, 16), (0, 0, 0)]
"""By member, of the adapters in slots 0, 1, …; a member of rank 0 is not targeted."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15}
LONG = 20
SLOTS = [0, 2, 2] + [0] * LONG + [1] * (LONG - 1) + [2] * (LONG + 9) + [-1] * (LONG + 1) + [3] * LONG + [1] * 40


def make_weights(slot: int, dtype: torch.dtype) -> LoraWeights:
    """Return random weights; those of slot 2 have a scale and biases, as DoRA does, those of slot 3 biases alone, and
    slot 1 has its own weights for k."""
    generator = torch.Generator().manual_seed(slot)

    def numbers(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) / 8).to(dtype).to(DEVICE)

    expands, start, out_start = [], 0, 0
    for rank, width in zip(RANKS[slot], WIDTHS, strict=True):
        if rank:
            expands.append(Expand(start, start + rank, out_start, numbers(rank, width)))
        start, out_start = start + rank, out_start + width
    changes: dict[int, Any] = {
        1: (Dense(WIDTHS[0], numbers(WIDTHS[1], IN)),),
        2: (Affine(0, numbers(OUT), numbers(OUT)),),
        3: (Affine(WIDTHS[0], numbers(WIDTHS[1])),),
    }
    return LoraWeights(numbers(start, IN), tuple(expands), changes.get(slot, ()))


def make_table(weights: dict[int, LoraWeights], gemm_rows: int) -> LoraTable:
    table = LoraTable(IN, WIDTHS, LoraOptions(gemm_rows))
    for slot, each in weights.items():
        table.put(slot, each)
    return table


def rows_of(count: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> tuple[list[WorkList], list[list[Segment]]]:
    """What the kernels and the matmuls compute, in turn."""
    work: list[WorkList] = []
    segments: list[list[Segment]] = []
    kernels, matmuls = segmented_lora.add_segments, segmented_lora.add_segment_by_segment
    monkeypatch.setattr(segmented_lora, "add_segments", lambda *a, **o: (work.append(a[3]), kernels(*a, **o))[1])
    monkeypatch.setattr(segmented_lora, "add_segment_by_segment", lambda *a: (segments.append(a[2]), matmuls(*a))[1])
    return work, segments


def tiled_rows(work: WorkList) -> list[tuple[int, int]]:
    """Return the slot and the number of each row that the kernels compute, by growing row."""
    tiles = [tile for part in work for tile in part.tiles.tolist()]
    return sorted(
        ((slot, row) for slot, start, rows in tiles for row in range(start, start + rows)), key=lambda t: t[1]
    )


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
def test_long_and_short_segments_of_one_batch(
    dtype: torch.dtype, computed: tuple[list[WorkList], list[list[Segment]]]
) -> None:
    weights = {slot: make_weights(slot, dtype) for slot in range(4)}
    x, start = rows_of(len(SLOTS), IN, dtype, 2), rows_of(len(SLOTS), OUT, dtype, 3)
    expected, segments = lora_reference(start, x, SLOTS, weights), segments_from(SLOTS)
    tables = [make_table(weights, LONG), make_table({slot: weights[slot] for slot in (0, 1)}, LONG)]
    for table in tables:
        out = start.clone()
        table.add(out, x, segments)
        known = torch.tensor([slot in table.weights for slot in SLOTS]).to(DEVICE)
        wanted = torch.where(known[:, None], expected, start.double())
        assert torch.allclose(out.double(), wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    (first, second), by_matmuls = computed
    assert first is second, "all modules of a step share the work list"
    short, long = ([s for s in segments if (s.rows >= LONG) == is_long] for is_long in (False, True))
    assert tiled_rows(first) == [(s.slot, row) for s in short for row in range(s.start, s.stop)]
    assert by_matmuls == [[s for s in long if s.slot in (0, 1, 2)], [s for s in long if s.slot in (0, 1)]]


def test_without_the_option_kernels_compute_all(computed: tuple[list[WorkList], list[list[Segment]]]) -> None:
    weights = {0: make_weights(0, torch.float32)}
    x, out = rows_of(500, IN, torch.float32, 2), rows_of(500, OUT, torch.float32, 3)
    expected = lora_reference(out, x, [0] * 500, weights)
    make_table(weights, 0).add(out, x, segments_from([0] * 500))
    assert torch.allclose(out.double(), expected, atol=1e-4)
    (work,), by_matmuls = computed
    assert tiled_rows(work) == [(0, row) for row in range(500)]
    assert by_matmuls == [[]]


@pytest.mark.parametrize("broken", [0, 1])
def test_nan_in_one_adapter_stays_in_its_rows(broken: int) -> None:
    """Its neighbours are a long segment, a short one, and rows without an adapter."""
    weights = {slot: make_weights(slot, torch.float32) for slot in (0, 1, 2)}
    for tensor in weights[broken].tensors:
        tensor.fill_(float("nan"))
    slots = [2] * LONG + [0] * LONG + [2, 1, 2] + [1] * LONG + [-1] * 3 + [0] * 2 + [2] * LONG
    out = torch.zeros(len(slots), OUT, device=DEVICE)
    make_table(weights, LONG).add(out, torch.ones(len(slots), IN, device=DEVICE), segments_from(slots))
    hit = torch.tensor([slot == broken for slot in slots]).to(DEVICE)
    assert out[hit].isnan().any(dim=1).all()
    assert out[~hit].isfinite().all()
