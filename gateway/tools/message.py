"""Incremental parsing of an assistant's message into content and tool calls, and a request's use of tools."""

import secrets
from dataclasses import dataclass
from typing import TypeAlias

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Arguments, CallStart, Content, Event, Tools


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The start of a call; its arguments follow. `index` counts the message's calls."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class MoreArguments:
    """More of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Piece: TypeAlias = Content | ToolCall | MoreArguments


class MessageReader:
    """Reads one completion's text. Apart from how they are divided, the pieces do not depend on how the text arrived.

    White space before a call belongs neither to the content nor to the call. Without `parallel`, only the first call
    is returned.
    """

    def __init__(self, format: ToolFormat, tools: Tools, *, parallel: bool) -> None:
        self._stream = TextStream()
        self._steps = format.read(self._stream, tools)
        self._parallel = parallel
        self._blank = ""
        self._calls = 0

    def push(self, text: str) -> list[Piece]:
        """Return the pieces that are complete once `text` has arrived."""
        self._stream.push(text)
        return self._pieces()

    def finish(self) -> list[Piece]:
        """Return the remaining pieces, after the last text."""
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


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A request's use of tools. `named`: the caller chose the function, not the model. `as_function_call`: the request
    has `functions`, the older name of tools, so the answer has one `function_call`."""

    format: ToolFormat
    tools: Tools
    parallel: bool = True
    named: bool = False
    as_function_call: bool = False

    def reader(self) -> MessageReader:
        """Return a reader for one completion."""
        return MessageReader(self.format, self.tools, parallel=self.parallel)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
