"""The engine's disk tier keeps to its budget and never deletes files while they are read."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from loragate.engine.adapters import disk_tier
from loragate.engine.adapters.disk_tier import MIN_FREE_BYTES, DiskTier


def put(directory: Path, name: str, size: int = 100) -> Path:
    path = directory / "tenant" / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(size))
    return path


def test_the_least_recently_read_is_evicted_first(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=250)
    a, b = put(tmp_path, "a"), put(tmp_path, "b")
    tier.add(a)
    tier.add(b)
    with tier.reading(a):
        pass
    c = put(tmp_path, "c")
    tier.add(c)
    assert (a.exists(), b.exists(), c.exists()) == (True, False, True)
    assert tier.used == 200


def test_files_in_use_are_not_evicted(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=100)
    a = put(tmp_path, "a")
    tier.add(a)
    with tier.reading(a):
        tier.add(put(tmp_path, "b"))
        assert a.exists()
    tier.add(put(tmp_path, "c"))
    assert not a.exists()


def test_an_adapter_larger_than_the_budget_stays_until_another_comes(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=10)
    a = put(tmp_path, "a")
    tier.add(a)
    assert a.exists()


def test_a_restart_finds_stored_files_and_shrinks_to_the_budget(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path, name)
    assert DiskTier(tmp_path, budget=1000).used == 300
    assert len(DiskTier(tmp_path, budget=150)) == 1


def test_prefetched_adapters_are_evicted_last(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=250)
    a, b = put(tmp_path, "a"), put(tmp_path, "b")
    tier.add(a)
    tier.add(b)
    tier.protected = frozenset({a})
    c = put(tmp_path, "c")
    tier.add(c)
    assert (a.exists(), b.exists(), c.exists()) == (True, False, True)
    tier.protected = frozenset({a, c})
    tier.add(put(tmp_path, "d"))
    assert not a.exists(), "one of those that are to be kept, where there is nothing else"


def test_files_are_evicted_while_the_disk_has_too_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = DiskTier(tmp_path, budget=1000)
    a, b = put(tmp_path, "a"), put(tmp_path, "b")
    tier.add(a)
    tier.add(b)
    monkeypatch.setattr(disk_tier.shutil, "disk_usage", lambda _: SimpleNamespace(free=MIN_FREE_BYTES - 150))
    c = put(tmp_path, "c")
    tier.add(c)
    assert (a.exists(), b.exists(), c.exists()) == (False, False, True), "the one that was just fetched is needed"
