"""What memory is left, in bytes."""

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
"""Where a group is told, its root, and names of its files: the bound, what is used, and what of that files are."""


def free_host_memory() -> int:
    """What can be had without swapping, and within the bounds of a container: pages of files that were read, a
    checkpoint's first of all, count as free (`MemAvailable` in proc_meminfo(5))."""
    return max(0, min([_of_machine(), *_of_groups()]))


def _of_machine() -> int:
    """Where that is not told, pages that nobody uses."""
    if _LINUX.exists() and (told := re.search(r"^MemAvailable: +(\d+) kB$", _LINUX.read_text(), re.MULTILINE)):
        return int(told[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups() -> Iterator[int]:
    """What the control groups leave that this process is in (cgroups(7)), those of version 2 and of version 1."""
    own = _OWN_GROUPS.read_text() if _OWN_GROUPS.exists() else ""
    for pattern, root, names in _VERSIONS:
        told = re.search(pattern, own, re.MULTILINE)
        path = root / told[1] if told else root
        for group in (path, *path.parents):
            with suppress(OSError, ValueError):  # not a group, or one that tells no bound
                if group.is_relative_to(root):
                    yield _of_group(group, *names)


def _of_group(group: Path, most: str, used: str, files: str) -> int:
    """Raises ValueError if it has no bound."""
    bound = int((group / most).read_text())
    held = re.findall(rf"^{files} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    return bound - int((group / used).read_text()) + sum(map(int, held))


def free_device_memory(device: torch.device) -> int:
    """Of a GPU, its own, with what torch holds of it and does not use; a CPU's is the host's."""
    if device.type == "cpu":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
