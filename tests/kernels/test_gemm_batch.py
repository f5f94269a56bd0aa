"""The batched product of MKL against torch's own, shape by shape."""

import pytest
import torch

from loragate.kernels import gemm_batch
from loragate.kernels.gemm_batch import GemmBatch, Product

pytestmark = pytest.mark.skipif(not gemm_batch.available(), reason="this build of torch exports no batched product")


def test_products_of_different_shapes_in_one_call() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, 64, generator=generator), torch.randn(10, 50, generator=generator)
    before = y.clone()
    matrices = [torch.randn(inner, columns, generator=generator) for inner, columns in ((64, 8), (16, 50), (1, 1))]
    places = [(0, 2, 0, 0), (2, 7, 3, 0), (9, 1, 60, 49)]  # first row, rows, first column of x, of y
    products = [
        Product(rows, *matrix.shape, start * 64 + x_column, matrix.data_ptr(), start * 50 + y_column)
        for matrix, (start, rows, x_column, y_column) in zip(matrices, places, strict=True)
    ]
    GemmBatch(products, 64, 50, add=True).run(x, y)
    for matrix, (start, rows, x_column, y_column) in zip(matrices, places, strict=True):
        inner, columns = matrix.shape
        before[start : start + rows, y_column : y_column + columns] += (
            x[start : start + rows, x_column : x_column + inner] @ matrix
        )
    assert torch.allclose(y, before, atol=1e-4)


def test_what_is_not_added_is_overwritten_even_where_it_was_nan() -> None:
    y = torch.full((2, 3), float("nan"))
    GemmBatch([Product(2, 4, 3, 0, 0, 0)], 4, 3, add=False).run(torch.ones(2, 4), y, torch.ones(4, 3))
    assert torch.equal(y, torch.full((2, 3), 4.0))


def test_runs_again_on_tensors_that_lie_elsewhere() -> None:
    batch = GemmBatch([Product(2, 4, 3, 0, 12, 0)], 4, 3, add=False)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, matrices, y = (
            torch.randn(2, 4, generator=generator),
            torch.randn(2, 4, 3, generator=generator),
            torch.empty(2, 3),
        )
        batch.run(x, y, matrices)
        assert torch.allclose(y, x @ matrices[1], atol=1e-5)


def test_matrices_that_lie_transposed() -> None:
    generator = torch.Generator().manual_seed(3)
    x, matrix, y = torch.randn(2, 4, generator=generator), torch.randn(3, 4, generator=generator), torch.empty(2, 3)
    GemmBatch([Product(2, 4, 3, 0, 0, 0)], 4, 3, add=False, transposed=True).run(x, y, matrix)
    assert torch.allclose(y, x @ matrix.T, atol=1e-5)


@pytest.mark.parametrize(("inner", "columns"), [(768, 48), (2048, 16), (64, 8), (16, 2048)])
def test_a_row_alone_is_bitwise_the_row_in_company(inner: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(2)
    x, matrix = torch.randn(16, inner, generator=generator), torch.randn(inner, columns, generator=generator)
    alone, together = torch.zeros(16, columns), torch.zeros(16, columns)
    for row in range(16):
        one = Product(1, inner, columns, row * inner, 0, row * columns)
        GemmBatch([one], inner, columns, add=False).run(x, alone, matrix)
    size = gemm_batch.ROWS_ALIKE
    tiles = [Product(min(size, 16 - i), inner, columns, i * inner, 0, i * columns) for i in range(0, 16, size)]
    GemmBatch(tiles, inner, columns, add=False).run(x, together, matrix)
    assert torch.equal(alone, together)
