"""Compiled loops that run on the threads of torch.

If we had a thread pool of our own beside torch's, both would spin on the same cores while waiting for work. The body of
a loop is therefore passed to the OpenMP runtime that torch has loaded, in the way compilers do it: `GOMP_parallel`
calls one function on all threads of the pool (GNU libgomp manual, "Implementing PARALLEL construct").
"""

import ctypes
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import llvmlite.binding
import numpy as np
import torch
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic, overload

from loragate.kernels.cpu.openmp import find_library

compiled = njit(fastmath={"reassoc", "nsz", "arcp", "contract"}, error_model="numpy", cache=True)
"""Compiles inner loops. Sums are taken in an order that suits the vector units and depends on shapes alone."""


thread = types.ExternalFunction("omp_get_thread_num", types.int32())
threads = types.ExternalFunction("omp_get_num_threads", types.int32())


def int64_array(*values: int) -> "ctypes.Array[ctypes.c_int64]":
    """Return the arguments of a loop (shapes, strides, addresses) as an array."""
    return (ctypes.c_int64 * len(values))(*values)


class ParallelLoop:
    """Calls `body`, a module-level function, once on each of torch's threads, with a pointer to the arguments.

    The caller keeps the memory behind addresses among the arguments alive. The body is compiled on its first call and
    cached on disk; it uses `thread()` and `threads()` to find its share of the work.
    """

    def __init__(self, body: Callable[[Any], None]) -> None:
        self._body = body

    def __call__(self, arguments: "ctypes.Array[ctypes.c_int64]") -> None:
        self._start(self._address, arguments, torch.get_num_threads(), 0)

    @cached_property
    def _start(self) -> Any:
        return _runtime().GOMP_parallel

    def compile(self) -> None:
        """Compile the body unless it is already compiled."""
        self._address  # noqa: B018

    @cached_property
    def _address(self) -> ctypes.c_void_p:
        _runtime()  # lets compiled code find its functions
        signature = types.void(types.CPointer(types.int64))
        try:
            self._compiled = cfunc(signature, error_model="numpy", cache=True)(self._body)
        except RuntimeError:  # no writable cache directory
            self._compiled = cfunc(signature, error_model="numpy")(self._body)
        return ctypes.c_void_p(self._compiled.address)


@cache
def _runtime() -> ctypes.CDLL:
    path = str(find_library())
    llvmlite.binding.load_library_permanently(path)
    return ctypes.CDLL(path)


def _pointer_to(number: Any, word: ir.Type) -> Any:
    @intrinsic
    def pointer(_context: Any, _address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], word.as_pointer())

        return types.CPointer(number)(types.int64), generate

    return pointer


floats_at = _pointer_to(types.float32, ir.FloatType())
"""Turns an address into a pointer, for `carray`."""
halves_at = _pointer_to(types.uint16, ir.IntType(16))
ints_at = _pointer_to(types.int64, ir.IntType(64))


def number(stored: Any) -> float:
    """Return a float32 in compiled code: the number itself, or the value of a bfloat16 given as 16 bits."""
    raise NotImplementedError


@overload(number)
def _number(stored):  # type: ignore[no-untyped-def]  # numba compares the signature with those of the lambdas
    if stored == types.uint16:
        return lambda stored: _float_of_bits(np.uint32(stored) << np.uint32(16))
    return lambda stored: stored


@intrinsic
def _float_of_bits(_context: Any, _bits: Any) -> Any:
    """Return the float32 with these 32 bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate
