"""The interface of a tool-call format."""

from typing import Protocol

from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Steps, Tools


class ToolFormat(Protocol):
    """The way one family of models writes calls. It has no state, so one object serves all requests."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The format's own tokens, which are part of the text even if the tokenizer marks them as special."""
        ...

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Read the text of one completion. A call of an unknown tool is content. Never raise."""
        ...

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Return the expression of one to `max_calls` calls of `tools`, with arguments that match their schemas."""
        ...
