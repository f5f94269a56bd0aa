"""Places that tenants and strangers share."""

from contextlib import ExitStack

import pytest

from loragate.gateway.resilience.fair_places import FairPlaces, NoPlace


def take_all(places: FairPlaces, owner: str, held: ExitStack) -> int:
    """Take as many as there are for the owner."""
    taken = 0
    while True:
        try:
            held.enter_context(places.hold(owner))
        except NoPlace:
            return taken
        taken += 1


def test_one_alone_gets_half_and_leaves_the_rest_to_others() -> None:
    with ExitStack() as held:
        places = FairPlaces(64)
        assert [take_all(places, owner, held) for owner in "abcdef"] == [32, 16, 8, 4, 2, 1]


def test_those_who_come_together_get_the_same() -> None:
    places, taken = FairPlaces(100), dict.fromkeys("abc", 0)
    with ExitStack() as held:
        for _ in range(100):
            for owner in taken:
                try:
                    held.enter_context(places.hold(owner))
                except NoPlace:
                    continue
                taken[owner] += 1
    assert taken == {"a": 25, "b": 25, "c": 25}


def test_no_tenant_gets_more_than_the_most() -> None:
    with ExitStack() as held:
        places = FairPlaces(64, most=3)
        assert [take_all(places, owner, held) for owner in "ab"] == [3, 3]


def test_there_are_no_more_than_there_are() -> None:
    with ExitStack() as held:
        places = FairPlaces(8)
        assert sum(take_all(places, f"owner {number}", held) for number in range(100)) == 8


def test_what_is_given_back_can_be_held_again() -> None:
    places = FairPlaces(2)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), places.hold("a"):
            raise ZeroDivisionError
    with places.hold("a"), pytest.raises(NoPlace), places.hold("a"):
        pass
    with places.hold("a"), places.hold("b"):
        pass
