"""The matcher against a reference that reads one character at a time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loragate.gateway.text.stop_strings import StopMatcher


def _reference(text: str, stops: Sequence[str], include: bool) -> tuple[str, str | None]:
    """Return the text up to the first position where a stop string ends, and the longest one there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("abc", max_size=6), max_size=8),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    include=st.booleans(),
)
def test_any_split_gives_the_same_result(pieces: list[str], stops: list[str], include: bool) -> None:
    matcher = StopMatcher(stops, include_stop=include)
    sent, stop = "", None
    for piece in pieces:
        text, stop = matcher.push(piece)
        sent += text
        if stop is not None:
            break
    else:
        sent += matcher.finish()
    assert (sent, stop) == _reference("".join(pieces), stops, include)


def test_only_a_possible_beginning_is_held_back() -> None:
    matcher = StopMatcher(["</end>"])
    assert matcher.push("text <") == ("text ", None)
    assert matcher.push("/e") == ("", None)
    assert matcher.push("x") == ("</ex", None)
    assert matcher.push("</end") == ("", None)
    assert matcher.push(">more") == ("", "</end>")


@pytest.mark.parametrize("stops", [[], ["zzz"]])
def test_without_a_match_all_text_is_emitted(stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    assert matcher.push("abc").text + matcher.push("zz").text + matcher.finish() == "abczz"
