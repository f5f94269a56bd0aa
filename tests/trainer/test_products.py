"""A row's product has the same bits for any number of rows and threads."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from training_runs import threads

from loragate.trainer.frozen import frozen_linear
from loragate.trainer.products import add_outer, multiply

ROWS = (16, 48, 80, 112, 256, 528)
# sums of 1,024 and more terms, or few columns, are where MKL changes how it cuts them
SHAPES = [(48, 32), (1024, 8), (1024, 1024), (1536, 512), (2048, 512), (4864, 50)]


@pytest.mark.parametrize(("width", "columns"), SHAPES)
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "backward"])
def test_rows_do_not_depend_on_their_number_nor_on_threads(width: int, columns: int, *, transposed: bool) -> None:
    x, w = numbers(528, width), numbers(columns, width).t() if transposed else numbers(width, columns)
    added = numbers(528, columns)
    assert_same(lambda rows: multiply(x[:rows], w)[:16], ROWS)
    assert_same(lambda rows: multiply(x[:rows], w, added[:rows].clone())[:16], ROWS)


def test_any_number_of_rows_can_be_padded() -> None:
    x, w = numbers(40, 1536), numbers(1536, 4)
    for row in (0, 7):
        assert_same(lambda rows, row=row: frozen_linear(x[:rows], w, None)[row], range(row + 1, 41))  # type: ignore[misc]


@pytest.mark.parametrize(("rank", "width"), [(1, 48), (8, 1024), (24, 1536)])
def test_a_gradient_does_not_depend_on_threads(rank: int, width: int) -> None:
    left, right = numbers(128, rank), numbers(128, width)

    def added(rows: int) -> Tensor:
        out = torch.ones(rank, width)
        add_outer(out, left[:rows], right[:rows])
        return out

    for rows in (16, 48, 128):
        assert_same(added, [rows])


def numbers(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows * columns))


def assert_same(compute: Callable[[int], Tensor], rows: object) -> None:
    found = []
    for count in (1, 2):
        with threads(count):
            found += [compute(each).clone() for each in rows]  # type: ignore[attr-defined]
    assert all(torch.equal(found[0], each) for each in found[1:])
