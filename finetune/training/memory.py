"""Limits on the memory of a run, which it shares with serving."""

import errno
import resource
from contextlib import suppress
from pathlib import Path

import torch

_CPU_OUT_OF_MEMORY = "can't allocate memory"  # in torch's RuntimeError


def set_oom_score() -> None:
    """Make the kernel, when out of memory, kill this process before any that serves (proc(5), oom_score_adj)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_memory(max_bytes: int) -> None:
    """Make allocations fail that would exceed `max_bytes`: of GPU memory if there is a GPU, otherwise of main memory,
    beyond what the process already uses (Linux only)."""
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(torch.device("cuda")).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, max_bytes / total))
        return
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * resource.getpagesize() + max_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed for lack of memory, on a CPU or a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or _CPU_OUT_OF_MEMORY in str(error)
