"""Matching of stop strings in text that arrives in pieces.

The result does not depend on how the text was divided: the match that ends first applies, and the longest of those that
end at the same position.
"""

from collections.abc import Sequence
from typing import NamedTuple

from loragate.gateway.tools.text_stream import held_back


class Matched(NamedTuple):
    """`text` can be sent now; `stop` is the stop string that ended the completion, None if none did."""

    text: str
    stop: str | None


class StopMatcher:
    """Checks one completion's text, and holds back text that could be the start of a stop string."""

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        assert all(stops), "an empty stop string would stop everything"
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._held = ""

    def push(self, text: str) -> Matched:
        """Add text. Do not use the matcher after a `stop`."""
        if not self._stops:
            return Matched(text, stop=None)
        text = self._held + text
        spans = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if spans:
            end, start = min(spans)
            return Matched(text[: end if self._include_stop else start], stop=text[start:end])
        held = held_back(text, self._stops)
        self._held = text[len(text) - held :]
        return Matched(text[: len(text) - held], stop=None)

    def finish(self) -> str:
        """Return the text held back, after the last text."""
        text, self._held = self._held, ""
        return text
