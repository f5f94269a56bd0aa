"""What memory is left, in bytes."""

import os
import re
from pathlib import Path

import torch

_LINUX = Path("/proc/meminfo")


def free_host_memory() -> int:
    """What can be had without swapping: pages of files that were read, a checkpoint's first of all, count as free
    (`MemAvailable` in proc_meminfo(5)). Where that is not told, pages that nobody uses."""
    if _LINUX.exists() and (told := re.search(r"^MemAvailable: +(\d+) kB$", _LINUX.read_text(), re.MULTILINE)):
        return int(told[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_device_memory(device: torch.device) -> int:
    """Of a GPU, its own, with what torch holds of it and does not use; a CPU's is the host's."""
    if device.type == "cpu":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
