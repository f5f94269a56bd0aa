"""Control of the OpenMP threads that torch computes with.

They form a team that belongs to the computing thread. While the teams of a process have more threads than the machine
has cores, libgomp puts threads that wait for work to sleep immediately instead of letting them spin, and every
operation starts by waking them: 50 µs instead of 5, more than a hundred times per step. A serving process therefore
keeps only one team, that of its step loop.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch

_HARD = 2  # omp_pause_hard


@cache
def find_library() -> Path | None:
    """Return the OpenMP runtime (GNU's) that came with torch, or None if this build of torch has another or none."""
    packages = Path(torch.__file__).parent
    found = [*packages.glob("lib/libgomp*.so*"), *packages.parent.glob("torch.libs/libgomp*.so*")]
    return found[0] if found else None


def compute_with(threads: int) -> None:
    """Set the team size of the calling thread, and of other threads that have not computed yet."""
    torch.get_num_threads()  # the first query applies the process's setting to the thread, which must not happen later
    torch.set_num_threads(threads)


def compute_alone() -> None:
    """Limit the calling thread to itself: it gets no team."""
    compute_with(1)


def end_team() -> None:
    """End the team of the calling thread; its next computation creates another one."""
    path = find_library()
    if path is not None:
        ctypes.CDLL(str(path)).omp_pause_resource_all(_HARD)
