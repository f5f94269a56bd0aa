"""The fields of a chat request that are about tools."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.body import Body
from loragate.gateway.schemas.findings import finding
from loragate.gateway.schemas.messages import ChatMessage
from loragate.gateway.schemas.tools import MAX_TOOLS, Tool, ToolChoiceField


class ToolFields(Body):
    """Without `tool_choice` the model chooses."""

    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> "ToolFields":
        names: set[str] = set()
        for position, tool in enumerate(self.tools or ()):
            if tool.function.name in names:
                raise finding(f"tools.{position}.function.name", "another tool has this name")
            names.add(tool.function.name)
        if self.tool_choice is not None:
            if self.tool_choice.forced and not names:
                raise finding("tool_choice", "it is only allowed with 'tools'")
            if not names.issuperset(self.tool_choice.names or ()):
                raise finding("tool_choice", "it names a function that is not in 'tools'")
        return self

    @property
    def usable_tools(self) -> list[Tool]:
        """Those that the model is told of; none if it must not call any."""
        if not self.tools or (self.tool_choice is not None and self.tool_choice.type == "none"):
            return []
        allowed = None if self.tool_choice is None or self.tool_choice.allowed_tools is None else self.tool_choice.names
        return [tool for tool in self.tools if allowed is None or tool.function.name in allowed]


def check_answers(messages: Sequence[ChatMessage]) -> None:
    """Right after a message with calls stands one answer to each of them, and nowhere else. Raises a finding."""
    caller, open_calls = 0, set[str]()
    for position, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                words = "it answers no call of the assistant's message in front of it"
                raise finding(f"messages.{position}.tool_call_id", words)
            open_calls.discard(message.tool_call_id)
            continue
        if open_calls:
            break
        caller, open_calls = position, {call.id for call in message.tool_calls or ()}
        if len(open_calls) < len(message.tool_calls or ()):
            raise finding(f"messages.{position}.tool_calls", "two calls have the same id")
    if open_calls:
        words = "each call must be answered by a message of role 'tool', right after this message"
        raise finding(f"messages.{caller}.tool_calls", words)
