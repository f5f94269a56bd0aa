"""Free memory, in bytes."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

_LINUX = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")
_VERSIONS = (
    (r"^0::/(.*)$", _ROOT, ("memory.max", "memory.current", "(?:in)?active_file")),
    (
        r"^\d+:(?:.+,)?memory(?:,.+)?:/(.*)$",
        _ROOT / "memory",
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file"),
    ),
)
"""Pattern of a control group's path, the root folder, and the names of its files and fields: the limit, the usage, and
the pages of files in it."""


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
    """Yield what the control groups of this process leave (cgroups(7)), in version 2 and version 1."""
    own = _OWN_GROUPS.read_text() if _OWN_GROUPS.exists() else ""
    for pattern, root, names in _VERSIONS:
        found = re.search(pattern, own, re.MULTILINE)
        path = root / found[1] if found else root
        for group in (path, *path.parents):
            with suppress(OSError, ValueError):  # not a group, or one without a limit
                if group.is_relative_to(root):
                    yield _group_memory(group, *names)


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
