"""Experts' LoRA against its definition, row by row, for every way in which rows can be routed."""

import random

import pytest
import torch
from skip_for_missing import skip_for_missing
from torch import Tensor

from loragate.kernels import cpu
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.segmented_experts import ExpertTable, Routing, StackedLinear, experts_reference, route
from loragate.kernels.segments import Segment

EXPERTS, IN, OUT, TOP_K = 5, 24, 40, 2
RANKS = {0: 4, 1: 16, 3: 5}


def factors(rank: int) -> ExpertFactors:
    return ExpertFactors(torch.randn(EXPERTS, rank, IN), torch.randn(EXPERTS, rank, OUT))


@pytest.fixture(autouse=True, params=["compiled", "one by one"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations: with compiled loops, and without."""
    if request.param == "one by one":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        skip_for_missing("OpenMP as torch's wheels bring it, for compiled loops")


@pytest.fixture
def table() -> ExpertTable:
    torch.manual_seed(0)
    table = ExpertTable()
    for slot, rank in RANKS.items():
        table.put(slot, factors(rank))
    return table


def choose(rows: int, routing: str) -> Tensor:
    """Choose two different experts for each row, [rows, 2]."""
    if routing == "one pair":
        return torch.tensor([[3, 1]]).repeat(rows, 1)
    last = 2 if routing == "two experts" else EXPERTS
    return torch.stack([torch.randperm(last)[:TOP_K] for _ in range(rows)])


def segments_from(slots: list[int]) -> list[Segment]:
    return [Segment(slot, row, row + 1) for row, slot in enumerate(slots) if slot >= 0]


def by_pair(routing: Routing, chosen: Tensor, slots: list[int]) -> tuple[list[int], list[int]]:
    """Return the expert and the slot of each routed row, derived from the choice itself."""
    return chosen.reshape(-1)[routing.order].tolist(), [slots[row] for row in routing.rows.tolist()]


@pytest.mark.parametrize("routing", ["any", "one pair", "two experts"])
@pytest.mark.parametrize("popularity", ["distinct", "identical", "base only", "skewed"])
@pytest.mark.parametrize("rows", [1, 3, 16, 90])
def test_every_row_gets_its_own_adapters_update_at_its_own_experts(
    table: ExpertTable, rows: int, popularity: str, routing: str
) -> None:
    rng = random.Random(rows)
    weights = {
        "distinct": [1] * 5,
        "identical": [0, 0, 1, 0, 0],
        "base only": [1, 0, 0, 0, 0],
        "skewed": [2, 1, 40, 1, 1],
    }
    slots = rng.choices([-1, 0, 1, 2, 3], weights[popularity], k=rows)  # nothing targets the experts in slot 2
    chosen = choose(rows, routing)
    routed = route(chosen, segments_from(slots))
    x, base = torch.randn(rows * TOP_K, IN), torch.randn(rows * TOP_K, OUT)
    out = base.clone()
    table.add(out, x, routed)
    experts, owners = by_pair(routed, chosen, slots)
    torch.testing.assert_close(
        out.double(), experts_reference(base, x, experts, owners, table.weights), rtol=1e-5, atol=1e-4
    )


def test_runs_cover_every_routed_row_once() -> None:
    chosen = choose(30, "any")
    routed = route(chosen, [Segment(1, 0, 4), Segment(0, 9, 20)])
    assert sorted(routed.order.tolist()) == list(range(60))
    assert [run.start for run in routed.runs] == [0, *(run.stop for run in routed.runs[:-1])]
    assert routed.runs[-1].stop == 60
    for run in routed.runs:
        assert (chosen.reshape(-1)[routed.order[run.start : run.stop]] == run.expert).all()


def test_nan_in_one_adapter_stays_in_its_rows(table: ExpertTable) -> None:
    table.weights[1].a.fill_(float("nan"))
    slots = [1, 0, -1, 3, 1, 0]
    chosen = choose(6, "two experts")
    routed = route(chosen, segments_from(slots))
    out = torch.zeros(12, OUT)
    table.add(out, torch.randn(12, IN), routed)
    _, owners = by_pair(routed, chosen, slots)
    assert out.isnan().any(dim=1).tolist() == [slot == 1 for slot in owners]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rows_result_does_not_depend_on_other_routed_rows(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weights, biases = torch.randn(EXPERTS, OUT, IN).to(dtype), torch.randn(EXPERTS, OUT).to(dtype)
    linear = StackedLinear(weights, biases)
    x, chosen = torch.randn(40, IN).to(dtype), choose(40, "any")[:, :1]
    routed = route(chosen, ())
    together = linear(x[routed.rows], routed)
    for place, row in enumerate(routed.rows.tolist()):
        alone = linear(x[row : row + 1], route(chosen[row : row + 1], ()))
        assert torch.equal(together[place], alone[0])
        expected = x[row].float() @ weights[chosen[row, 0]].float().T + biases[chosen[row, 0]].float()
        torch.testing.assert_close(alone[0].float(), expected, rtol=2e-2, atol=2e-2)
