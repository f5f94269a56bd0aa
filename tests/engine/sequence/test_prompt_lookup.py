"""Drafts from earlier text."""

from hypothesis import given
from hypothesis import strategies as st

from loragate.engine.sequence.prompt_lookup import PromptLookup


def test_earlier_continuations_are_proposed_again() -> None:
    assert PromptLookup(3).propose([1, 2, 3, 4, 5, 6, 1, 2]) == [3, 4, 5]


def test_the_latest_occurrence_is_used() -> None:
    assert PromptLookup(2).propose([1, 2, 7, 7, 1, 2, 8, 8, 1, 2]) == [8, 8]


def test_the_longest_match_is_used() -> None:
    assert PromptLookup(1).propose([9, 1, 2, 7, 5, 1, 2, 8, 9, 1, 2]) == [7]


def test_new_text_has_no_draft() -> None:
    assert PromptLookup(4).propose([1, 2, 3, 4]) == []
    assert PromptLookup(4).propose([1]) == []
    assert PromptLookup(4).propose([5, 1, 6, 1]) == [], "one token alone repeats by chance"


def test_a_repetition_proposes_itself() -> None:
    assert PromptLookup(3).propose([4, 4, 4]) == [4, 4, 4]
    assert PromptLookup(3).propose([4, 5] * 4) == [4, 5, 4]


def test_wrong_drafts_lengthen_the_pause_each_time() -> None:
    lookup, tokens = PromptLookup(2), [1, 2, 3, 1, 2]
    pauses = []
    for _ in range(4):
        while not lookup.propose(tokens):
            pauses[-1] += 1
        lookup.record_acceptance(0)
        pauses.append(0)
    assert pauses[:-1] == [1, 2, 4]
    while not lookup.propose(tokens):
        pass
    lookup.record_acceptance(1)
    assert lookup.propose(tokens)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5))
def test_growing_step_by_step_proposes_the_same_as_from_scratch(tokens: list[int], most: int) -> None:
    growing = PromptLookup(most)
    for end in range(1, len(tokens) + 1):
        guess = growing.propose(tokens[:end])
        assert guess == PromptLookup(most).propose(tokens[:end])
        assert len(guess) <= most
