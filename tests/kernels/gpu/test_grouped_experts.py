"""A mixture's experts in Triton, with their adapters, against products row by row in float64: in the interpreter, or on
a GPU.
"""

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.gpu.grouped_experts import HALVES, route_on_device
from loragate.kernels.segmented_experts import ExpertTable, StackedLinear, experts_reference, stacked_reference
from loragate.kernels.segments import segments_from

EXPERTS, IN, OUT, TOP_K = 5, 136, 40, 2  # more inputs than a shrink program reads at a time
RANKS = {0: 8, 1: 17, 3: 24, 4: 16}
"""Of the adapters by slot; that in slot 2 targets other parameters."""
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.15}
POPULARITY: dict[str, Callable[[random.Random], int]] = {
    "identical": lambda rng: 3,
    "distinct": lambda rng: rng.randrange(-1, 5),
    "zipf": lambda rng: min(int(rng.paretovariate(1.0)), 5) - 1,
    "skewed": lambda rng: rng.choice([0] * 9 + [4]),
    "base only": lambda rng: -1,
}
SHAPES = (20, TOP_K), (9, EXPERTS), (1, EXPERTS), (17, 3), (5, EXPERTS)
"""Rows, and how many experts they choose from."""


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / 4).to(dtype).to(DEVICE)


class Layer:
    """One stacked parameter, transposed in memory or not, with its adapters."""

    def __init__(self, dtype: torch.dtype = torch.float32, transposed: bool = False) -> None:
        weights = numbers(1, EXPERTS, IN, OUT, dtype=dtype)
        self.weights = weights.transpose(1, 2) if transposed else weights.transpose(1, 2).contiguous()
        self.biases = numbers(2, EXPERTS, OUT, dtype=dtype) if transposed else None
        self.linear = StackedLinear(self.weights, self.biases)
        self.adapters = ExpertTable()
        for slot, rank in RANKS.items():
            a, b = (numbers(slot + rank, EXPERTS, rank, width, dtype=dtype) / 4 for width in (IN, OUT))
            self.adapters.put(slot, ExpertFactors(a, b))

    def output(self, x: Tensor, chosen: Tensor, slots: list[int]) -> Tensor:
        """x [rows, in] → [rows, top_k, out]."""
        routing = self.linear.route(chosen, segments_from(slots))
        y = self.linear(x[routing.rows], routing)
        self.adapters.add(y, x[routing.rows], routing)
        return torch.empty_like(y).index_copy_(0, routing.order, y).view(*chosen.shape, -1)

    def expected(self, x: Tensor, chosen: Tensor, slots: list[int]) -> Tensor:
        top_k = chosen.shape[1]
        each, experts = x.repeat_interleave(top_k, dim=0), chosen.reshape(-1).tolist()
        base = stacked_reference(self.weights, self.biases, each, experts)
        owners = [slot for slot in slots for _ in range(top_k)]
        return experts_reference(base, each, experts, owners, self.adapters.weights).view(*chosen.shape, -1)


def choose(rng: random.Random, rows: int, experts: int = EXPERTS) -> Tensor:
    return torch.tensor([rng.sample(range(experts), TOP_K) for _ in range(rows)], device=DEVICE).view(rows, TOP_K)


@pytest.mark.parametrize("transposed", [False, True], ids=["outputs first", "inputs first, biases"])
@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
def test_equals_the_reference(dtype: torch.dtype, transposed: bool) -> None:
    layer, rng = Layer(dtype, transposed), random.Random(1)
    for (name, draw), (rows, experts) in zip(POPULARITY.items(), SHAPES, strict=True):
        slots = sorted(draw(rng) for _ in range(rows))
        x, chosen = numbers(rows, rows, IN, dtype=dtype), choose(rng, rows, experts)
        found, expected = layer.output(x, chosen, slots).double(), layer.expected(x, chosen, slots)
        assert torch.allclose(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]), name


def test_full_tiles_are_split() -> None:
    """One expert, and one adapter there, has more rows than a tile."""
    layer, rows = Layer(torch.float16), 2 * HALVES.rows + 3
    x, chosen = numbers(3, rows, IN, dtype=torch.float16), torch.tensor([[3], [1]] + [[2]] * (rows - 2), device=DEVICE)
    slots = [-1] * 5 + [1] * 40 + [4] * (rows - 45)
    found = layer.output(x, chosen, slots).double()
    assert torch.allclose(found, layer.expected(x, chosen, slots), atol=0.02, rtol=0.02)


@given(st.lists(st.tuples(st.integers(-1, 4), st.permutations(range(EXPERTS))), max_size=40), st.integers(1, EXPERTS))
@settings(max_examples=60)
def test_tiles_hold_every_row_once(rows: list[tuple[int, list[int]]], top_k: int) -> None:
    """For any routing, no tile mixes experts or adapters, none is too large, and all of them fit."""
    slots = sorted(slot for slot, _ in rows)
    chosen = torch.tensor([experts[:top_k] for _, experts in rows], dtype=torch.int64).view(-1, top_k)
    segments = segments_from(slots) if slots else ()
    order, tiles = route_on_device(chosen.to(DEVICE), segments, EXPERTS, 16)
    expert = chosen.reshape(-1)[order.cpu()].tolist()
    slot = [slots[place // top_k] for place in order.tolist()]
    assert sorted(order.tolist()) == list(range(len(rows) * top_k))
    assert covered(tiles.by_expert, EXPERTS) == list(enumerate(expert))
    by_adapter = [(row, s * EXPERTS + e) for row, (s, e) in enumerate(zip(slot, expert, strict=True)) if s >= 0]
    assert [pair for work in tiles.by_adapter for pair in covered(work.tiles, 5 * EXPERTS)] == by_adapter


def covered(tiles: Tensor, owners: int) -> list[tuple[int, int]]:
    """Return the rows of the tiles that have an owner, with the owner."""
    own = [tile for tile in tiles.tolist() if tile[0] < owners]
    assert all(0 < count <= 16 for _, _, count in own)
    return [(row, owner) for owner, first, count in own for row in range(first, first + count)]


@pytest.mark.parametrize("dtype", thinned([torch.float32, torch.float16], fast={torch.float16}), ids=str)
def test_a_row_is_bitwise_the_same_in_any_batch(dtype: torch.dtype) -> None:
    """Alone, and with others in any order: a tenant's tokens must not reveal who else is served."""
    layer, rng, rows = Layer(dtype), random.Random(2), 24
    slots = sorted(rng.randrange(-1, 5) for _ in range(rows))
    x, chosen = numbers(7, rows, IN, dtype=dtype), choose(rng, rows)
    together = layer.output(x, chosen, slots)
    for row in range(0, rows, 5):
        alone = layer.output(x[row : row + 1], chosen[row : row + 1], slots[row : row + 1])
        assert torch.equal(alone[0], together[row]), row
    order = rng.sample(range(rows), rows)
    shuffled = layer.output(x[order], chosen[order], [slots[row] for row in order])
    assert torch.equal(shuffled, together[order])


def test_nan_in_one_adapter_or_row_stays_there() -> None:
    layer = Layer()
    layer.adapters.weights[1].a.fill_(float("nan"))
    slots = [-1, 0, 0, 1, 2, 3, 3]
    x, chosen = numbers(4, 7, IN), choose(random.Random(3), 7, 3)
    x[5] = float("nan")
    found = layer.output(x, chosen, slots)
    assert found.isfinite().all(dim=(1, 2)).tolist() == [slot != 1 and row != 5 for row, slot in enumerate(slots)]
    assert torch.allclose(found[[0, 1, 2, 4, 6]].double(), layer.expected(x, chosen, slots)[[0, 1, 2, 4, 6]], atol=1e-4)


def test_a_reused_slot_computes_the_new_adapter() -> None:
    layer, slots = Layer(), [0, 0, 3]
    x, chosen = numbers(5, 3, IN), choose(random.Random(4), 3)
    layer.adapters.clear(0)
    assert torch.allclose(layer.output(x, chosen, slots).double(), layer.expected(x, chosen, slots), atol=1e-4)
    layer.adapters.put(0, ExpertFactors(numbers(8, EXPERTS, 256, IN) / 4, numbers(9, EXPERTS, 256, OUT) / 4))
    assert torch.allclose(layer.output(x, chosen, slots).double(), layer.expected(x, chosen, slots), atol=1e-4)


def test_nothing_to_do() -> None:
    layer = Layer()
    none = layer.linear.route(torch.zeros(0, TOP_K, dtype=torch.int64, device=DEVICE), ())
    assert layer.linear(numbers(1, 0, IN), none).shape == (0, OUT)
    routing = layer.linear.route(choose(random.Random(5), 3), ())
    assert routing.tiles is not None
    assert routing.tiles.by_adapter == (), "rows of the base model alone cost no launch of the adapters'"
