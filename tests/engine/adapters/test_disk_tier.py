"""The engine's own disk keeps to its budget, and never takes files away from somebody who reads them."""

from pathlib import Path

from loragate.engine.adapters.disk_tier import DiskTier


def put(directory: Path, name: str, size: int = 100) -> Path:
    path = directory / "tenant" / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(size))
    return path


def test_the_least_recently_read_leaves_first(tmp_path: Path) -> None:
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


def test_what_is_being_read_stays(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=100)
    a = put(tmp_path, "a")
    tier.add(a)
    with tier.reading(a):
        tier.add(put(tmp_path, "b"))
        assert a.exists()
    tier.add(put(tmp_path, "c"))
    assert not a.exists()


def test_one_larger_than_the_budget_is_kept_while_it_is_alone(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, budget=10)
    a = put(tmp_path, "a")
    tier.add(a)
    assert a.exists()


def test_a_restart_finds_what_was_kept_and_shrinks_it(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path, name)
    assert DiskTier(tmp_path, budget=1000).used == 300
    assert len(DiskTier(tmp_path, budget=150)) == 1


def test_what_is_to_be_kept_leaves_last(tmp_path: Path) -> None:
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
