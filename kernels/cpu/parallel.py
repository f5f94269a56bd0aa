"""Compiled loops on the threads that torch computes with.

A pool of threads of our own beside torch's would have both wait for work on the same cores, spinning. So the body of
a loop goes to the OpenMP runtime that torch has loaded, in the way in which compilers hand it over: `GOMP_parallel`
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
"""For inner loops. Sums are taken in the order that suits the vectors, which depends on shapes alone."""


thread = types.ExternalFunction("omp_get_thread_num", types.int32())
threads = types.ExternalFunction("omp_get_num_threads", types.int32())


def whole_numbers(*values: int) -> "ctypes.Array[ctypes.c_int64]":
    """As arguments of a loop: shapes, strides, addresses."""
    return (ctypes.c_int64 * len(values))(*values)


class ParallelLoop:
    """Calls `body`, a function of a module, once on each of torch's threads, with a pointer to the arguments.

    Whoever calls keeps alive what the addresses among them point at. The body is compiled when it is first called, and
    kept on disk; it asks `thread()` and `threads()` for its share.
    """

    def __init__(self, body: Callable[[Any], None]) -> None:
        self._body = body

    def __call__(self, arguments: "ctypes.Array[ctypes.c_int64]") -> None:
        self._start(self._address, arguments, torch.get_num_threads(), 0)

    @cached_property
    def _start(self) -> Any:
        return _runtime().GOMP_parallel

    def compile(self) -> None:
        """Unless it is compiled."""
        self._address  # noqa: B018

    @cached_property
    def _address(self) -> ctypes.c_void_p:
        _runtime()  # where compiled code finds its functions
        signature = types.void(types.CPointer(types.int64))
        try:
            self._compiled = cfunc(signature, error_model="numpy", cache=True)(self._body)
        except RuntimeError:  # nowhere to keep it
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
"""From an address to a pointer, for `carray`."""
halves_at = _pointer_to(types.uint16, ir.IntType(16))
numbers_at = _pointer_to(types.int64, ir.IntType(64))


def number(stored: Any) -> float:
    """In compiled code, a float32: itself, or what the 16 bits of a bfloat16 stand for."""
    raise NotImplementedError


@overload(number)
def _number(stored):  # type: ignore[no-untyped-def]  # numba compares it with the lambdas
    if stored == types.uint16:
        return lambda stored: _float_of_bits(np.uint32(stored) << np.uint32(16))
    return lambda stored: stored


@intrinsic
def _float_of_bits(_context: Any, _bits: Any) -> Any:
    """The float32 that these 32 bits stand for."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate
