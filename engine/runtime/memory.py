"""Free memory, in bytes."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from loragate.engine.runtime.control_groups import groups

_LINUX = Path("/proc/meminfo")
_FILES = {
    2: ("memory.max", "memory.current", "(?:in)?active_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file"),
}
"""Files and fields of a control group, by version: the limit, the usage, and the pages of files in it."""


def free_host_memory() -> int:
    """Return the memory that is available without swapping, and within the limits of a container.

    Pages of files that were read, first of all a checkpoint's, count as free (`MemAvailable` in proc_meminfo(5)).
    """
    return max(0, min([_machine_memory(), *_group_limits()]))


def _machine_memory() -> int:
    """Return the machine's available memory; unused pages where `MemAvailable` is not reported."""
    if _LINUX.exists() and (found := re.search(r"^MemAvailable: +(\d+) kB$", _LINUX.read_text(), re.MULTILINE)):
        return int(found[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_limits() -> Iterator[int]:
    """Yield what the control groups of this process leave."""
    for version, group in groups("memory"):
        with suppress(OSError, ValueError):  # not a group, or one without a limit
            yield _group_memory(group, *_FILES[version])


def _group_memory(group: Path, limit: str, used: str, files: str) -> int:
    """Return what is left of a group's limit. Raise ValueError if it has none."""
    bound = int((group / limit).read_text())
    held = re.findall(rf"^{files} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    return bound - int((group / used).read_text()) + sum(map(int, held))


def free_device_memory(device: torch.device) -> int:
    """Return a GPU's free memory, including what torch holds unused; for a CPU, the host's."""
    if device.type == "cpu":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
