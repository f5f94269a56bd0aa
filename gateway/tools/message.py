"""An assistant's message in the making: content and calls, with the ids that callers know them by."""

import secrets
from dataclasses import dataclass
from typing import TypeAlias

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Arguments, CallStart, Content, Event, Tools


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call begins; its arguments follow. `index` counts the message's calls."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class MoreArguments:
    """More of the JSON text of call `index`'s arguments."""

    index: int
    text: str


Piece: TypeAlias = Content | ToolCall | MoreArguments


class MessageReader:
    """Reads one completion's text. What comes out does not depend on how the text was cut, but for where it is cut.

    White space in front of a call belongs to neither content nor call. Without `parallel` the first call is the
    only one.
    """

    def __init__(self, format: ToolFormat, tools: Tools, *, parallel: bool) -> None:
        self._stream = TextStream()
        self._steps = format.read(self._stream, tools)
        self._parallel = parallel
        self._blank = ""
        self._calls = 0

    def push(self, text: str) -> list[Piece]:
        """What can be said now that `text` has come."""
        self._stream.push(text)
        return self._pieces()

    def finish(self) -> list[Piece]:
        """The rest, once no text will come."""
        self._stream.end()
        pieces = self._pieces()
        if self._blank:
            pieces.append(Content(self._blank))
        return pieces

    def _pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for event in self._steps:
            if event is None:
                break
            if (piece := self._piece(event)) is not None:
                pieces.append(piece)
        return pieces

    def _piece(self, event: Event) -> Piece | None:
        match event:
            case Content(text):
                return self._content(text)
            case CallStart(name):
                self._blank = ""
                self._calls += 1
                return ToolCall(self._calls - 1, _new_id(), name) if self._wanted else None
            case Arguments(text):
                return MoreArguments(self._calls - 1, text) if self._wanted and text else None

    def _content(self, text: str) -> Content | None:
        text = self._blank + text
        kept = text.rstrip()
        self._blank = text[len(kept) :]
        return Content(kept) if kept else None

    @property
    def _wanted(self) -> bool:
        return self._parallel or self._calls == 1


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
