"""How much of a machine's memory is available."""

import os
from pathlib import Path

import psutil
import pytest

from loragate.engine.runtime import control_groups
from loragate.engine.runtime import memory as free_memory
from loragate.engine.runtime.memory import free_host_memory


def test_page_cache_counts_as_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "groups", lambda controller: [])
    assert free_host_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_system_without_meminfo_is_asked_for_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "_LINUX", tmp_path / "none")
    assert 0 < free_host_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


GROUP = {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 1\ninactive_file 700\nactive_file 300\n"}
OLD = {
    "memory.limit_in_bytes": "5000",
    "memory.usage_in_bytes": "3000",
    "memory.stat": "active_file 9\ntotal_inactive_file 700\ntotal_active_file 300\n",
}


@pytest.mark.parametrize(
    ("cgroup", "where", "files", "free"),
    [
        ("0::/", "", GROUP, 3000),  # as a container sees its own
        ("0::/a/b", "a/b", GROUP, 3000),
        ("0::/a/b", "a", GROUP, 3000),  # of which it is a part
        ("0::/a", "b", GROUP, None),  # another container's
        ("0::/a", "a", GROUP | {"memory.max": "max"}, None),
        ("0::/a", "a", GROUP | {"memory.current": "7000"}, 0),
        ("4:memory:/a\n0::/", "memory/a", OLD, 3000),
        ("4:cpu,memory:/a", "memory", OLD, 3000),  # not visible in its namespace
    ],
)
def test_a_containers_limit_applies(
    cgroup: str, where: str, files: dict[str, str], free: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's host has much more memory than the container in which the engine runs."""
    (tmp_path / "own").write_text(f"{cgroup}\n")
    root = tmp_path / "groups"
    (root / where).mkdir(parents=True)
    for name, text in files.items():
        (root / where / name).write_text(f"{text}\n")
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "_ROOT", root)
    found = free_host_memory()
    assert found > 1 << 20 if free is None else found == free
