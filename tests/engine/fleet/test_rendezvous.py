from collections import Counter

import pytest

from loragate.engine.fleet.rendezvous import ranked

KEYS = [f"adapter-{number}" for number in range(3000)]
TWO = {"a": 16.0, "b": 16.0}
THREE = {**TWO, "c": 16.0}


def first(weights: dict[str, float]) -> dict[str, str]:
    return {key: ranked(key, weights)[0] for key in KEYS}


def test_every_key_orders_all_engines() -> None:
    assert sorted(ranked("adapter", THREE)) == ["a", "b", "c"]
    assert ranked("adapter", {}) == []


def test_a_new_engine_takes_its_part_and_moves_nothing_else() -> None:
    before, after = first(TWO), first(THREE)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert all(after[key] == "c" for key in moved)
    assert len(moved) / len(KEYS) == pytest.approx(1 / 3, abs=0.03)


def test_an_engine_that_returns_gets_its_keys_back() -> None:
    assert first({name: THREE[name] for name in ("c", "a", "b")}) == first(THREE)


def test_the_second_engine_takes_over_when_the_first_is_gone() -> None:
    order = {key: ranked(key, THREE) for key in KEYS}
    left = first(TWO)
    assert all(left[key] == (order[key][1] if order[key][0] == "c" else order[key][0]) for key in KEYS)


def test_engines_get_keys_in_proportion_to_their_weights() -> None:
    counts = Counter(first({"small": 8.0, "large": 24.0}).values())
    assert counts["large"] / len(KEYS) == pytest.approx(0.75, abs=0.03)
