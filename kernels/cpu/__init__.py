"""Kernels for CPUs: loops in Python that LLVM compiles when they are first used (numba).

They exist where a call to torch for each adapter or sequence costs more than its work: at the few rows of a decode
step. Importing the modules of this package needs numba; `available` says whether they can run.
"""

import importlib.util
from functools import cache

from loragate.kernels.cpu.openmp import find_library


@cache
def available() -> bool:
    """Whether numba is installed, and this build of torch shares its threads."""
    return importlib.util.find_spec("numba") is not None and find_library() is not None
