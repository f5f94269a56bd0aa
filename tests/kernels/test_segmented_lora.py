"""Segmented LoRA against its row-by-row reference in float64, over the shapes that adapter popularity takes."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loragate.kernels.segmented_lora import (
    Expand,
    LoraWeights,
    Segment,
    add_segmented_lora,
    lora_reference,
)

IN, OUT = 24, 40
POPULARITY = {
    "identical": lambda rng, rows: [3] * rows,
    "distinct": lambda rng, rows: list(range(rows)),
    "uniform": lambda rng, rows: [rng.randrange(8) for _ in range(rows)],
    "zipf": lambda rng, rows: [min(int(rng.paretovariate(1.0)), 8) for _ in range(rows)],
    "skewed": lambda rng, rows: [0] * (rows - 1) + [5],
    "base only": lambda rng, rows: [-1] * rows,
    "half base": lambda rng, rows: [rng.choice([-1, 2]) for _ in range(rows)],
}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15}


def make_weights(seed: int, dtype: torch.dtype, ranks: tuple[int, ...] = (4, 8)) -> LoraWeights:
    generator = torch.Generator().manual_seed(seed)
    expands, start, out_start = [], 0, 0
    for rank in ranks:
        b = torch.randn(rank, OUT // len(ranks), generator=generator).to(dtype)
        bias = torch.randn(OUT // len(ranks), generator=generator).to(dtype) if seed % 2 else None
        expands.append(Expand(start, start + rank, out_start, b, bias))
        start, out_start = start + rank, out_start + OUT // len(ranks)
    return LoraWeights(torch.randn(IN, start, generator=generator).to(dtype) / 5, tuple(expands))


def segments_of(slots: list[int]) -> list[Segment]:
    return [Segment(slot, row, row + 1) for row, slot in enumerate(slots) if slot >= 0]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("rows", [1, 7, 33])
@pytest.mark.parametrize("popularity", POPULARITY)
def test_equals_the_reference(popularity: str, rows: int, dtype: torch.dtype) -> None:
    slots = sorted(POPULARITY[popularity](random.Random(1), rows))
    ranks = [(4,), (8, 64), (16, 1)]
    weights = {slot: make_weights(slot, dtype, ranks[slot % 3]) for slot in set(slots) if slot >= 0}
    x = torch.randn(rows, IN, generator=torch.Generator().manual_seed(2)).to(dtype)
    out = torch.zeros(rows, OUT, dtype=dtype)
    add_segmented_lora(out, x, segments_of(slots), weights)
    expected = lora_reference(x, slots, weights, OUT)
    assert torch.allclose(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=20).map(sorted))
@settings(max_examples=50, deadline=None)
def test_any_division_into_segments(slots: list[int]) -> None:
    weights = {slot: make_weights(slot, torch.float32) for slot in range(4)}  # slot 4 targets another module
    x = torch.randn(len(slots), IN, generator=torch.Generator().manual_seed(3))
    start = torch.randn(len(slots), OUT, generator=torch.Generator().manual_seed(4))
    out = start.clone()
    add_segmented_lora(out, x, segments_of(slots), weights)
    assert torch.allclose(out.double(), start.double() + lora_reference(x, slots, weights, OUT), atol=1e-4)


def test_nan_in_one_adapter_stays_in_its_rows() -> None:
    weights = {0: make_weights(0, torch.float32), 1: make_weights(1, torch.float32)}
    weights[1].a.fill_(float("nan"))
    out = torch.zeros(4, OUT)
    add_segmented_lora(out, torch.ones(4, IN), [Segment(0, 0, 2), Segment(1, 2, 3)], weights)
    assert out[:2].isfinite().all()
    assert out[2].isnan().all()
    assert (out[3] == 0).all()
