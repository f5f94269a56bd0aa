"""Incremental parsing of an assistant's message into content and tool calls, and a request's use of tools."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Arguments, CallStart, Content, Event, Tools
from loragate.prompts.custom_tools import input_of


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The start of a call; its arguments follow, or for a `custom` tool its input in one piece. `index` counts the
    message's calls."""

    index: int
    id: str
    name: str
    custom: bool = False


@dataclass(frozen=True, slots=True)
class MoreArguments:
    """More of the JSON text of the arguments of call `index`; for a custom tool, its input."""

    index: int
    text: str
    custom: bool = False


Piece: TypeAlias = Content | ToolCall | MoreArguments


class MessageReader:
    """Reads one completion's text. Apart from how they are divided, the pieces do not depend on how the text arrived.

    White space before a call belongs neither to the content nor to the call. Without `parallel`, only the first call
    is returned.
    """

    def __init__(
        self, format: ToolFormat, tools: Tools, *, parallel: bool, custom: Collection[str] = frozenset()
    ) -> None:
        """`custom` are the names of the custom tools among `tools`."""
        self._stream = TextStream()
        self._steps = format.read(self._stream, tools)
        self._parallel = parallel
        self._blank = ""
        self._calls = 0
        self._custom = custom
        self._input: list[str] | None = None  # the arguments of a custom tool's call, until they are complete

    def push(self, text: str) -> list[Piece]:
        """Return the pieces that are complete once `text` has arrived."""
        self._stream.push(text)
        return self._pieces()

    def finish(self) -> list[Piece]:
        """Return the remaining pieces, after the last text."""
        self._stream.end()
        pieces = [*self._pieces(), *self._whole_input()]
        if self._blank:
            pieces.append(Content(self._blank))
        return pieces

    def _pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for event in self._steps:
            if event is None:
                break
            if not isinstance(event, Arguments):
                pieces += self._whole_input()
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
                if not self._wanted:
                    return None
                custom = name in self._custom
                self._input = [] if custom else None
                return ToolCall(self._calls - 1, _new_id(), name, custom)
            case Arguments(text) if self._input is not None:
                self._input.append(text)
                return None
            case Arguments(text):
                return MoreArguments(self._calls - 1, text) if self._wanted and text else None

    def _whole_input(self) -> list[Piece]:
        """Return the input of the custom tool whose call has ended."""
        arguments, self._input = self._input, None
        return [] if arguments is None else [MoreArguments(self._calls - 1, input_of("".join(arguments)), custom=True)]

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
    """A request's use of tools. `named`: the caller chose the tool, not the model. `as_function_call`: the request has
    `functions`, the older name of tools, so the answer has one `function_call`. `custom` are the names of the custom
    tools."""

    format: ToolFormat
    tools: Tools
    parallel: bool = True
    named: bool = False
    as_function_call: bool = False
    custom: frozenset[str] = frozenset()

    def reader(self) -> MessageReader:
        """Return a reader for one completion."""
        return MessageReader(self.format, self.tools, parallel=self.parallel, custom=self.custom)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
