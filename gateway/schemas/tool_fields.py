"""The fields of a chat request that are about tools."""

from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.inference.tools import ToolChoiceField
from loragate.prompts.body import Body
from loragate.prompts.findings import finding
from loragate.prompts.tools import MAX_TOOLS, Tool, names_of


class ToolFields(Body):
    """Without `tool_choice` the model chooses."""

    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> "ToolFields":
        names = names_of(self.tools or ())
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
