"""The threads that torch computes with.

They belong to a team of the thread that computes. While the teams of a process have more threads than it has cores,
libgomp lets those that wait for work sleep at once instead of spinning, and every operation begins by waking them up:
50 µs instead of 5, more than a hundred times in a step. So a process that serves keeps one team, that of its step loop.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch

_HARD = 2  # omp_pause_hard


@cache
def find_library() -> Path | None:
    """The OpenMP runtime (GNU's) that came with torch. None: torch is of another build, or computes otherwise."""
    packages = Path(torch.__file__).parent
    found = [*packages.glob("lib/libgomp*.so*"), *packages.parent.glob("torch.libs/libgomp*.so*")]
    return found[0] if found else None


def compute_with(threads: int) -> None:
    """The size of the calling thread's team from now on, and of others' that have not computed yet."""
    torch.get_num_threads()  # takes over the process's setting when a thread first asks, and must not do so later
    torch.set_num_threads(threads)


def compute_alone() -> None:
    """The calling thread gets no team."""
    compute_with(1)


def disband() -> None:
    """End the team of the calling thread. It gets another when it next computes."""
    path = find_library()
    if path is not None:
        ctypes.CDLL(str(path)).omp_pause_resource_all(_HARD)
