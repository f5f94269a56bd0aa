"""`tools`, `tool_choice`, and the calls in an assistant's message."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from loragate.gateway.schemas.body import Body
from loragate.gateway.schemas.findings import finding
from loragate.gateway.schemas.json_schema import JsonSchema

MAX_TOOLS = 128
_MODES = ("none", "auto", "required")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def _of_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise PydanticCustomError("schema", "the schema must be of type 'object'", {})
    return schema


FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
ArgumentsSchema = Annotated[JsonSchema, AfterValidator(_of_an_object)]


class FunctionDefinition(Body):
    """What a function is called, what it is for, and what it takes; without `parameters` it takes nothing."""

    name: FunctionName
    description: Annotated[str, StringConstraints(max_length=1 << 16)] | None = None
    parameters: ArgumentsSchema | None = None
    strict: bool | None = None

    @property
    def arguments_schema(self) -> dict[str, Any]:
        """An object's JSON Schema."""
        return self.parameters or _NO_ARGUMENTS


class Tool(Body):
    """One of `tools`."""

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function = self.function
        described = {} if function.description is None else {"description": function.description}
        return {
            "type": "function",
            "function": {"name": function.name, **described, "parameters": function.arguments_schema},
        }


class NamedFunction(Body):
    """A function, by its name."""

    name: FunctionName


class NamedTool(Body):
    """A tool, by its function's name."""

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
        raise PydanticCustomError("tool_choice", "the mode is written as a string", {})
    return choice


class ToolChoice(Body):
    """`tool_choice`, whose string forms are a `type` here."""

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
                raise finding(field, f"it goes with the type '{field}', and only with it")
        return self

    @property
    def names(self) -> list[str] | None:
        """The functions that it names; None for all."""
        if self.function is not None:
            return [self.function.name]
        return None if self.allowed_tools is None else [tool.function.name for tool in self.allowed_tools.tools]

    @property
    def forced(self) -> bool:
        """There must be a call."""
        return self.type in ("required", "function") or (
            self.allowed_tools is not None and self.allowed_tools.mode == "required"
        )


ToolChoiceField = Annotated[
    ToolChoice, BeforeValidator(_as_object, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoice)
]


class CalledFunction(Body):
    """What was called, with its arguments as the model wrote them: JSON, or what was meant to be."""

    name: FunctionName
    arguments: str


class CallOfMessage(Body):
    """One of an assistant's `tool_calls`."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    type: Literal["function"]
    function: CalledFunction
