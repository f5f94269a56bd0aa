"""Changes of the base output against the same formula written out, with other rows in the batch and other memory
layouts.
"""

import pytest
import torch
from torch import Tensor

from loragate.kernels.base_output import Affine, BaseChange, Dense, DenseOutputs
from loragate.kernels.lora_weights import LoraWeights
from loragate.kernels.segmented_lora import LoraTable
from loragate.kernels.segments import Segment

IN, OUT, ROWS = 6, 10, 5
MINE = Segment(1, 1, 3)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


X, Y = random(ROWS, IN), random(ROWS, OUT)
SHIFT, SCALE, WEIGHT, BIAS, TOKENS = random(4), random(4), random(4, IN), random(4), torch.tensor([9, 0, 5, 2])


def written_out(change: str) -> Tensor:
    y = Y.clone()
    for row in range(MINE.start, MINE.stop):
        for i in range(4):
            match change:
                case "shift":
                    y[row, 3 + i] += SHIFT[i]
                case "scale":
                    y[row, 3 + i] = y[row, 3 + i] * SCALE[i] + SHIFT[i]
                case "own":
                    y[row, 3 + i] = WEIGHT[i].dot(X[row]) + BIAS[i]
                case "own outputs":
                    y[row, TOKENS[i]] = WEIGHT[i].dot(X[row])
    return y


CHANGES: dict[str, BaseChange] = {
    "shift": Affine(3, SHIFT),
    "scale": Affine(3, SHIFT, SCALE),
    "own": Dense(3, WEIGHT, BIAS),
    "own outputs": DenseOutputs(TOKENS, WEIGHT),
}


def applied(change: BaseChange, dtype: torch.dtype = torch.float32) -> Tensor:
    table = LoraTable(IN, (OUT,))
    table.put(MINE.slot, LoraWeights(torch.empty(0, IN), (), (change,)))
    y = Y.to(dtype, copy=True)
    table.add(y, X.to(dtype), (MINE,))
    return y


@pytest.mark.parametrize("name", CHANGES)
def test_equals_the_formula(name: str) -> None:
    assert torch.allclose(applied(CHANGES[name]), written_out(name), atol=1e-6)


@pytest.mark.parametrize("name", CHANGES)
def test_other_rows_and_outputs_do_not_change(name: str) -> None:
    changed, expected = applied(CHANGES[name]), written_out(name)
    assert torch.equal(changed[expected == Y], Y[expected == Y])


@pytest.mark.parametrize("name", CHANGES)
def test_moves_whole(name: str) -> None:
    change = CHANGES[name]
    assert torch.equal(applied(change.on(iter([t.clone() for t in change.tensors]))), applied(change))


@pytest.mark.parametrize("name", ["shift", "scale"])
def test_takes_outputs_of_less_precision(name: str) -> None:
    assert torch.allclose(applied(CHANGES[name], torch.bfloat16).float(), written_out(name), atol=0.05, rtol=0.02)


def test_nan_stays_in_its_rows() -> None:
    nan = Affine(0, torch.full((OUT,), float("nan")), torch.ones(OUT))
    y = applied(nan)
    assert y[MINE.start : MINE.stop].isnan().all()
    assert y[: MINE.start].isfinite().all()
    assert y[MINE.stop :].isfinite().all()
