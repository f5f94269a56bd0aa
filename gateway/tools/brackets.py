"""Reading bracketed and quoted values."""

from collections.abc import Callable

from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Event, Malformed, Steps

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class _Scan:
    """Counts brackets outside of strings, in a text that arrives in pieces."""

    def __init__(self, quotes: str) -> None:
        self._quotes = quotes
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def end(self, text: str) -> int | None:
        """Return the position in `text` where the value ends that began with the first piece's first character."""
        for position, character in enumerate(text, start=1):
            if self._escaped:
                self._escaped = False
            elif self._quote:
                self._escaped = character == "\\"
                if character == self._quote:
                    self._quote = ""
            elif character in self._quotes:
                self._quote = character
            elif character in _OPENING:
                self._depth += 1
            elif character in _CLOSING:
                self._depth -= 1
            if self._depth <= 0 and not self._quote:
                return position
        return None


def stream_bracketed(stream: TextStream, make: Callable[[str], Event]) -> Steps[None]:
    """Commit and yield a JSON object or array as it arrives, up to its last bracket or the end of the text."""
    scan = _Scan('"')
    while True:
        end = scan.end(stream.peek())
        stream.take(stream.available if end is None else end)
        if piece := stream.commit():
            yield make(piece)
        if end is not None or stream.ended:
            return
        yield None


def bracketed(stream: TextStream, quotes: str = '"') -> Steps[str]:
    """Read a complete value that begins with a bracket or a quote. Raise Malformed if the text ends within it."""
    scan = _Scan(quotes)
    pieces = []
    while True:
        end = scan.end(stream.peek())
        pieces.append(stream.take(stream.available if end is None else end))
        if end is not None:
            return "".join(pieces)
        if stream.ended:
            raise Malformed
        yield None
