"""The control groups of this process (cgroups(7)): the limits of a container, or of a service."""

import re
from collections.abc import Iterator
from pathlib import Path

_OWN = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def groups(controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the version (2 or 1) and the folder of each group that limits this process, inner ones first.

    Folders may lack the controller's files. A container often sees its own group as the root.
    """
    own = _OWN.read_text() if _OWN.exists() else ""
    versions = ((2, r"^0::/(.*)$", _ROOT), (1, rf"^\d+:(?:.+,)?{controller}(?:,.+)?:/(.*)$", _ROOT / controller))
    for version, pattern, root in versions:
        found = re.search(pattern, own, re.MULTILINE)
        path = root / found[1] if found else root
        yield from ((version, group) for group in (path, *path.parents) if group.is_relative_to(root))


def cpu_quota() -> float | None:
    """Return the processors that the process may use on average, or None without a quota."""
    quotas = [quota for version, group in groups("cpu") if (quota := _quota(version, group)) is not None]
    return min(quotas, default=None)


def _quota(version: int, group: Path) -> float | None:
    """Return a group's own quota, or None if it has none."""
    try:
        if version == 2:
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{each}_us").read_text() for each in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # no such file, or "max"
        return None
