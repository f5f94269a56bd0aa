"""Kernels for CPUs: Python loops that numba compiles with LLVM on first use.

They are used where one torch call per adapter or sequence costs more than the computation, that is for the few rows of
a decode step. Importing the modules of this package requires numba; `available` reports whether they can run.
"""

import importlib.util
from functools import cache

from loragate.kernels.cpu.openmp import find_library


@cache
def available() -> bool:
    """Return whether numba is installed and this build of torch lets other code use its threads."""
    return importlib.util.find_spec("numba") is not None and find_library() is not None
