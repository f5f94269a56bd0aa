"""`tools` and `tool_choice`: the tools that the model may call, and whether it must call one."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, field_error
from loragate.prompts.custom_tools import AnyTool, ByKind, Custom, CustomTool, Function, check_kind
from loragate.prompts.tools import MAX_TOOLS, FunctionDefinition, FunctionName, Tool, tool_names

_MODES = ("none", "auto", "required")


class NamedFunction(ClientBody):
    """A function or a custom tool by its name."""

    name: FunctionName


class NamedTool(ClientBody):
    """A tool by the name of its function."""

    type: Literal["function"]
    function: NamedFunction

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name


class NamedCustomTool(ClientBody):
    """A custom tool by its name."""

    type: Literal["custom"]
    custom: NamedFunction

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.custom.name


AnyNamedTool = Annotated[
    Annotated[NamedTool, Function] | Annotated[NamedCustomTool, Custom], ByKind, BeforeValidator(check_kind)
]


class AllowedTools(ClientBody):
    """The only tools that may be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AnyNamedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


def _as_object(choice: Any) -> Any:
    if isinstance(choice, str):
        if choice not in _MODES:
            raise PydanticCustomError("tool_choice", "must be 'none', 'auto', 'required' or an object", {})
        return {"type": choice}
    if isinstance(choice, dict) and choice.get("type") in _MODES:
        raise PydanticCustomError("tool_choice", "give the mode as a string", {})
    return choice


class ToolChoice(ClientBody):
    """`tool_choice`. Its string forms are equivalent to a `type` here."""

    type: Annotated[
        Literal["none", "auto", "required", "function", "custom", "allowed_tools"],
        WithJsonSchema({"enum": ["function", "custom", "allowed_tools"]}),
    ]
    function: NamedFunction | None = None
    custom: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ToolChoice":
        for field in ("function", "custom", "allowed_tools"):
            if (getattr(self, field) is not None) != (self.type == field):
                raise field_error(field, f"it must be given exactly when the type is '{field}'")
        return self

    @property
    def names(self) -> list[str] | None:
        """The names of the tools that may be called; None for all tools."""
        named = self.function or self.custom
        if named is not None:
            return [named.name]
        return None if self.allowed_tools is None else [tool.name for tool in self.allowed_tools.tools]

    @property
    def named(self) -> bool:
        """Whether the caller chose the tool, not the model."""
        return self.type in ("function", "custom")

    @property
    def forced(self) -> bool:
        """Whether the model must call a tool."""
        return (
            self.named
            or self.type == "required"
            or (self.allowed_tools is not None and self.allowed_tools.mode == "required")
        )


ToolChoiceField = Annotated[
    ToolChoice, BeforeValidator(_as_object, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoice)
]


class ToolFields(ClientBody):
    """Without `tool_choice` the model decides whether to call tools. `functions` and `function_call` are OpenAI's older
    names; an answer to them has `function_call` instead of `tool_calls`."""

    tools: Annotated[list[AnyTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[list[FunctionDefinition], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    function_call: Literal["none", "auto"] | NamedFunction | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> "ToolFields":
        if not (self.tools or self.tool_choice or self.functions or self.function_call):
            return self
        older = bool(self.functions) or isinstance(self.function_call, NamedFunction)
        if older and (self.tools or self.tool_choice is not None):
            raise field_error("functions", "it is the older name of 'tools': give only one of them")
        listed, chosen = ("functions", "function_call") if older else ("tools", "tool_choice")
        names = tool_names(self.offered_tools, self._path_of_name)
        choice = self.choice
        if choice is not None:
            if choice.forced and not names:
                raise field_error(chosen, f"it is only allowed with '{listed}'")
            if not names.issuperset(choice.names or ()):
                raise field_error(chosen, f"it names a tool that is not in '{listed}'")
        return self

    def _path_of_name(self, position: int) -> str:
        if not self.tools:
            return f"functions.{position}.name"
        return f"tools.{position}.{self.tools[position].type}.name"

    @property
    def offered_tools(self) -> Sequence[Tool]:
        """The tools as functions, under either name."""
        if self.tools:
            return [tool.as_tool() if isinstance(tool, CustomTool) else tool for tool in self.tools]
        return [Tool(type="function", function=each) for each in self.functions or ()]

    @property
    def custom_tools(self) -> frozenset[str]:
        """The names of the custom tools."""
        return frozenset(tool.custom.name for tool in self.tools or () if isinstance(tool, CustomTool))

    @property
    def choice(self) -> ToolChoice | None:
        """The choice of a tool, under either name."""
        match self.function_call:
            case NamedFunction():
                return ToolChoice(type="function", function=self.function_call)
            case "none" | "auto" if self.functions:
                return ToolChoice(type=self.function_call)
            case _:
                return self.tool_choice

    @property
    def usable_tools(self) -> list[Tool]:
        """The tools that the prompt describes; empty if the model must not call any."""
        choice = self.choice
        if choice is not None and choice.type == "none":
            return []
        allowed = None if choice is None or choice.allowed_tools is None else choice.names
        return [tool for tool in self.offered_tools if allowed is None or tool.function.name in allowed]
