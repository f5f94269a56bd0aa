"""Matrix products in Triton's interpreter that do not depend on a row's position in its tile.

The interpreter multiplies with `numpy.matmul`. On some processors BLAS rounds a row by its position in the matrix, so
tests that compare bits would pass or fail by the machine. `einsum` adds up each number in the same order everywhere.
"""

from typing import Any

import numpy as np


def make_dot_independent_of_position() -> None:
    """Replace the interpreter's product of two tiles. TRITON_INTERPRET must be set."""
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_dot = _create_dot


def _create_dot(builder: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    left, right = (_as_numbers(each) for each in (a, b))
    product = np.einsum("...ik,...kj->...ij", left, right, dtype=d.data.dtype)
    return TensorHandle(product + d.data, d.dtype.scalar)


def _as_numbers(handle: Any) -> Any:
    """Return the tile's data; formats of eight bits as float16, as the interpreter itself has it."""
    assert handle.dtype.primitive_bitwidth > 8, "no kernel multiplies tiles of eight bits"
    return handle.data
