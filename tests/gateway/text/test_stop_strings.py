"""The matcher against a reference that reads one character at a time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loragate.gateway.text.stop_strings import StopMatcher


def _reference(text: str, stops: Sequence[str], include: bool) -> tuple[str, bool]:
    """Return the first position where a stop string ends, with the longest one there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end if include else end - len(max(found, key=len))], True
    return text, False


@given(
    pieces=st.lists(st.text("abc", max_size=6), max_size=8),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    include=st.booleans(),
)
def test_any_split_gives_the_same_result(pieces: list[str], stops: list[str], include: bool) -> None:
    matcher = StopMatcher(stops, include_stop=include)
    sent, stopped = "", False
    for piece in pieces:
        text, stopped = matcher.push(piece)
        sent += text
        if stopped:
            break
    else:
        sent += matcher.finish()
    assert (sent, stopped) == _reference("".join(pieces), stops, include)


def test_only_a_possible_beginning_is_held_back() -> None:
    matcher = StopMatcher(["</end>"])
    assert matcher.push("text <") == ("text ", False)
    assert matcher.push("/e") == ("", False)
    assert matcher.push("x") == ("</ex", False)
    assert matcher.push("</end") == ("", False)
    assert matcher.push(">more") == ("", True)


@pytest.mark.parametrize("stops", [[], ["zzz"]])
def test_without_a_match_all_text_is_emitted(stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    assert matcher.push("abc").text + matcher.push("zz").text + matcher.finish() == "abczz"
