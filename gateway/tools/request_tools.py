"""What one request wants of tools."""

from dataclasses import dataclass

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.message import MessageReader
from loragate.gateway.tools.types import Tools


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Calls of `tools` are read from the text. `named`: the caller chose the function, not the model."""

    format: ToolFormat
    tools: Tools
    parallel: bool = True
    named: bool = False

    def reader(self) -> MessageReader:
        """For one completion."""
        return MessageReader(self.format, self.tools, parallel=self.parallel)
