"""A stream of text that arrives in pieces, and the parsing steps that all formats share.

A parser waits until it has as much text as it needs for a decision, so the result does not depend on how the text was
divided. Text that was read but not committed is content: a format commits the text that it has interpreted.
"""

import re
from collections.abc import Callable

from loragate.gateway.tools.types import Content, Event, Malformed, Steps

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z0-9_.-]*")
_MAX_WORD_LENGTH = 64


class TextStream:
    """A growing text that is read from the front."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._at = 0
        self._committed = 0

    def push(self, text: str) -> None:
        """Append more text."""
        self._text = self._text[self._committed :] + text
        self._at -= self._committed
        self._committed = 0

    def end(self) -> None:
        """Mark the text as complete."""
        self.ended = True

    @property
    def available(self) -> int:
        """The number of characters that can be read now."""
        return len(self._text) - self._at

    def peek(self, length: int | None = None) -> str:
        """Return up to `length` of the characters that can be read now, without reading them."""
        return self._text[self._at : None if length is None else self._at + length]

    def find(self, literal: str) -> int:
        """Return how far ahead `literal` is; -1 if it is not there."""
        at = self._text.find(literal, self._at)
        return at - self._at if at >= 0 else -1

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Return what `pattern` matches at the current position."""
        matched = pattern.match(self._text, self._at)
        return None if matched is None else matched[0]

    def take(self, length: int) -> str:
        """Read this many characters."""
        piece = self.peek(length)
        self._at += len(piece)
        return piece

    def commit(self) -> str:
        """Return what was read since the last commit, and keep it from becoming content."""
        piece = self._text[self._committed : self._at]
        self._committed = self._at
        return piece


def space(stream: TextStream) -> Steps[None]:
    """Read any white space."""
    while True:
        blank = stream.match(_SPACE) or ""
        stream.take(len(blank))
        if stream.available or stream.ended:
            return
        yield None


def sees(stream: TextStream, literal: str) -> Steps[bool]:
    """Return whether the text continues with `literal`."""
    while not stream.ended and stream.available < len(literal) and literal.startswith(stream.peek()):
        yield None
    return stream.peek(len(literal)) == literal


def skip(stream: TextStream, literal: str) -> Steps[bool]:
    """Read `literal` if the text continues with it; return whether it does."""
    found = yield from sees(stream, literal)
    if found:
        stream.take(len(literal))
    return found


def expect(stream: TextStream, literal: str) -> Steps[None]:
    """Read `literal`. Raise Malformed."""
    if not (yield from skip(stream, literal)):
        raise Malformed


def word(stream: TextStream) -> Steps[str]:
    """Read a function's name. Raise Malformed."""
    while True:
        found = stream.match(_WORD) or ""
        if len(found) > _MAX_WORD_LENGTH:
            raise Malformed
        if len(found) < stream.available or stream.ended:
            break
        yield None
    if not found:
        raise Malformed
    return stream.take(len(found))


def until(stream: TextStream, make: Callable[[str], Event], *markers: str) -> Steps[str | None]:
    """Yield the text as it arrives, up to the first of `markers`; read and return that, or None at the text's end."""
    while True:
        found = [(at, marker) for marker in markers if (at := stream.find(marker)) >= 0]
        at, marker = min(found, default=(stream.available, None))
        if marker is None and not stream.ended:
            at -= held_back(stream.peek(), markers)
        stream.take(at)
        if piece := stream.commit():
            yield make(piece)
        if marker is not None:
            stream.take(len(marker))
            return marker
        if stream.ended:
            return None
        yield None


def text_until(stream: TextStream, marker: str) -> Steps[str | None]:
    """Read and return the text before `marker`, and read the marker. Without a marker, read nothing; return None."""
    while (at := stream.find(marker)) < 0:
        if stream.ended:
            return None
        yield None
    text = stream.take(at)
    stream.take(len(marker))
    return text


def content_until(stream: TextStream, *markers: str) -> Steps[str | None]:
    """Yield all text that is not committed, up to the first of `markers`, as content. Do not commit the marker."""
    return (yield from until(stream, Content, *markers))


def held_back(text: str, markers: tuple[str, ...]) -> int:
    """Return the length of the text's longest suffix that may be the beginning of a marker."""
    longest = max(map(len, markers), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        if any(marker.startswith(text[-length:]) for marker in markers):
            return length
    return 0
