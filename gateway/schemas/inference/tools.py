"""`tools` and `tool_choice`: the tools that the model may call, and whether it must call one."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.tools import MAX_TOOLS, FunctionName, Tool, tool_names
from loragate.prompts.validation import Body, field_error

_MODES = ("none", "auto", "required")


class NamedFunction(Body):
    """A function by its name."""

    name: FunctionName


class NamedTool(Body):
    """A tool by the name of its function."""

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Body):
    """The only tools that may be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


def _as_object(choice: Any) -> Any:
    if isinstance(choice, str):
        if choice not in _MODES:
            raise PydanticCustomError("tool_choice", "must be 'none', 'auto', 'required' or an object", {})
        return {"type": choice}
    if isinstance(choice, dict) and choice.get("type") in _MODES:
        raise PydanticCustomError("tool_choice", "give the mode as a string", {})
    return choice


class ToolChoice(Body):
    """`tool_choice`. Its string forms are equivalent to a `type` here."""

    type: Annotated[
        Literal["none", "auto", "required", "function", "allowed_tools"],
        WithJsonSchema({"enum": ["function", "allowed_tools"]}),
    ]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ToolChoice":
        for field in ("function", "allowed_tools"):
            if (getattr(self, field) is not None) != (self.type == field):
                raise field_error(field, f"it must be given exactly when the type is '{field}'")
        return self

    @property
    def names(self) -> list[str] | None:
        """The names of the functions that may be called; None for all functions."""
        if self.function is not None:
            return [self.function.name]
        return None if self.allowed_tools is None else [tool.function.name for tool in self.allowed_tools.tools]

    @property
    def forced(self) -> bool:
        """Whether the model must call a function."""
        return self.type in ("required", "function") or (
            self.allowed_tools is not None and self.allowed_tools.mode == "required"
        )


ToolChoiceField = Annotated[
    ToolChoice, BeforeValidator(_as_object, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoice)
]


class ToolFields(Body):
    """Without `tool_choice` the model decides whether to call tools."""

    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> "ToolFields":
        names = tool_names(self.tools or ())
        if self.tool_choice is not None:
            if self.tool_choice.forced and not names:
                raise field_error("tool_choice", "it is only allowed with 'tools'")
            if not names.issuperset(self.tool_choice.names or ()):
                raise field_error("tool_choice", "it names a function that is not in 'tools'")
        return self

    @property
    def usable_tools(self) -> list[Tool]:
        """The tools that the prompt describes; empty if the model must not call any."""
        if not self.tools or (self.tool_choice is not None and self.tool_choice.type == "none"):
            return []
        allowed = None if self.tool_choice is None or self.tool_choice.allowed_tools is None else self.tool_choice.names
        return [tool for tool in self.tools if allowed is None or tool.function.name in allowed]
