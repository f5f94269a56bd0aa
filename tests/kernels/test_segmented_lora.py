"""Segmented LoRA against its row-by-row reference in float64, for the shapes that adapter popularity takes."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skip_for_missing import skip_for_missing

from loragate.kernels import cpu
from loragate.kernels.base_output import Affine
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.segmented_lora import LoraTable, lora_reference
from loragate.kernels.segments import Segment, segments_from

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


@pytest.fixture(autouse=True, params=["compiled", "one by one"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both implementations: with compiled loops, and without."""
    if request.param == "one by one":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        skip_for_missing("OpenMP as torch's wheels bring it, for compiled loops")
    return str(request.param)


def make_weights(seed: int, ranks: tuple[int, ...] = (4, 8)) -> LoraWeights:
    """Return random weights; every second adapter has a bias, every third also a scale, as DoRA does."""
    generator = torch.Generator().manual_seed(seed)
    expands, affines, start, out_start = [], [], 0, 0
    width = OUT // len(ranks)
    for rank in ranks:
        expands.append(Expand(start, start + rank, out_start, torch.randn(rank, width, generator=generator)))
        if seed % 2:
            scale = torch.randn(width, generator=generator) if seed % 3 == 0 else None
            affines.append(Affine(out_start, torch.randn(width, generator=generator), scale))
        start, out_start = start + rank, out_start + width
    return LoraWeights(torch.randn(start, IN, generator=generator) / 5, tuple(expands), tuple(affines))


def make_table(weights: dict[int, LoraWeights]) -> LoraTable:
    table = LoraTable(IN, OUT)
    for slot, each in weights.items():
        table.put(slot, each)
    return table


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("rows", [1, 7, 33, 160])
@pytest.mark.parametrize("popularity", POPULARITY)
def test_equals_the_reference(popularity: str, rows: int, dtype: torch.dtype) -> None:
    slots = sorted(POPULARITY[popularity](random.Random(1), rows))
    ranks = [(4,), (8, 64), (16, 1)]
    weights = {slot: make_weights(slot, ranks[slot % 3]) for slot in set(slots) if slot >= 0}
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(rows, IN, generator=generator).to(dtype)
    out = torch.randn(rows, OUT, generator=generator).to(dtype)
    expected = lora_reference(out, x, slots, weights)
    make_table(weights).add(out, x, segments_from(slots))
    assert torch.allclose(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=40).map(sorted))
@settings(max_examples=50, deadline=None)
def test_any_division_into_segments(slots: list[int]) -> None:
    weights = {slot: make_weights(slot) for slot in range(4)}  # slot 4 targets another module
    x = torch.randn(len(slots), IN, generator=torch.Generator().manual_seed(3))
    out = torch.randn(len(slots), OUT, generator=torch.Generator().manual_seed(4))
    expected = lora_reference(out, x, slots, weights)
    make_table(weights).add(out, x, segments_from(slots))
    assert torch.allclose(out.double(), expected, atol=1e-4)


def test_a_reused_slot_computes_the_new_adapter() -> None:
    segments = segments_from([0, 0, 1])
    x, start = torch.ones(3, IN), torch.zeros(3, OUT)
    first, second, other = make_weights(1), make_weights(3), make_weights(2)
    table = make_table({0: first, 1: other})
    table.add(start.clone(), x, segments)
    table.clear(0)
    without = start.clone()
    table.add(without, x, segments)
    assert (without[:2] == 0).all()
    table.put(0, second)
    out = start.clone()
    table.add(out, x, segments)
    assert torch.allclose(out.double(), lora_reference(start, x, [0, 0, 1], {0: second, 1: other}), atol=1e-4)


def test_nan_in_one_adapter_stays_in_its_rows() -> None:
    weights = {0: make_weights(0), 1: make_weights(1)}
    weights[1].a.fill_(float("nan"))
    out = torch.zeros(4, OUT)
    make_table(weights).add(out, torch.ones(4, IN), (Segment(0, 0, 2), Segment(1, 2, 3)))
    assert out[:2].isfinite().all()
    assert out[2].isnan().all()
    assert (out[3] == 0).all()


def test_decode_rows_do_not_depend_on_their_neighbours(path: str) -> None:
    """Bitwise: a tenant's tokens must not reveal who else is being served."""
    if path != "compiled":
        pytest.skip("only the compiled loops promise it")
    generator = torch.Generator().manual_seed(5)
    weights = {slot: make_weights(slot, (16, 16)) for slot in range(3)}
    x, start = torch.randn(9, IN, generator=generator), torch.randn(9, OUT, generator=generator)
    slots = [0, 0, 0, 0, 0, 1, 2, 2, 2]
    together = start.clone()
    make_table(weights).add(together, x, segments_from(slots))
    for row, slot in enumerate(slots):
        alone = start[row : row + 1].clone()
        make_table(weights).add(alone, x[row : row + 1], segments_from([slot]))
        assert torch.equal(alone[0], together[row])


def test_weights_move_whole() -> None:
    weights = make_weights(3, (4, 8))
    assert len(weights.tensors) == 7
    moved = weights.on([t.clone() for t in weights.tensors])
    x, start = torch.ones(1, IN), torch.ones(1, OUT)
    assert torch.equal(lora_reference(start, x, [0], {0: moved}), lora_reference(start, x, [0], {0: weights}))
