"""What a format has to say."""

from typing import Protocol

from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream
from loragate.gateway.tools.types import Steps, Tools


class ToolFormat(Protocol):
    """How one family of models writes calls. It holds no state: one serves every request."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Tokens that belong to the format: they are part of the text even where the tokenizer calls them special."""
        ...

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """All of one completion's text. A call of what is not in `tools` is content. Never raises."""
        ...

    def write(self, lark: Lark, tools: Tools, *, most: int) -> str:
        """The expression of one to `most` calls of `tools`, with arguments that fit their schemas, and nothing else."""
        ...
