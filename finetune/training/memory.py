"""What a run may take of the memory that it shares with whoever serves."""

import errno
import resource
from contextlib import suppress
from pathlib import Path

import torch

_OF_PROCESSORS = "can't allocate memory"  # in torch's RuntimeError


def set_oom_score() -> None:
    """From now on the kernel, out of memory, kills this process before any that serves (proc(5), oom_score_adj)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_memory(most: int) -> None:
    """From now on allocations fail that would take this process beyond `most` bytes: of the GPU's memory where there is
    one, else of main memory, above what it has already; there only on Linux."""
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(torch.device("cuda")).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / total))
        return
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is why an allocation failed, on either kind of device."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or _OF_PROCESSORS in str(error)
