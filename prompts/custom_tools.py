"""Custom tools, whose input is a text instead of JSON arguments. The model sees each as a function with one argument,
which it knows how to call."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, StringConstraints, Tag, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, ExtraFields, field_error
from loragate.prompts.json_text import dump_json, parse_json
from loragate.prompts.tools import CalledFunction, Description, FunctionDefinition, FunctionName, MessageToolCall, Tool

_INPUT = "input"  # the only argument
_SYNTAX = {"lark": "Lark grammar", "regex": "regular expression"}

Syntax = Literal["lark", "regex"]
Definition = Annotated[str, StringConstraints(min_length=1, max_length=64 << 10)]


def check_kind(tool: Any) -> Any:
    """Reject a tool, a call or a choice that is neither of a function nor of a custom tool."""
    if not isinstance(tool, dict | ClientBody):
        raise PydanticCustomError("tool", "it must be an object", {})
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if kind is None:
        raise field_error("type", "this field is required")
    if kind not in ("function", "custom"):
        raise field_error("type", "it must be 'function' or 'custom'")
    return tool


def _tag(tool: Any) -> str:
    """Return the tag of a checked one. Unlike a field's name, it makes paths of errors unambiguous."""
    return f"{tool['type'] if isinstance(tool, dict) else tool.type} tool"


Function, Custom, ByKind = Tag("function tool"), Tag("custom tool"), Discriminator(_tag)


class InputGrammar(ClientBody):
    """The grammar of a custom tool's input."""

    syntax: Syntax
    definition: Definition


class InputFormat(ClientBody):
    """The form of a custom tool's input: any text, or what a grammar allows."""

    type: Literal["text", "grammar"]
    grammar: InputGrammar | None = None

    @model_validator(mode="after")
    def _has_a_grammar(self) -> "InputFormat":
        if (self.grammar is not None) != (self.type == "grammar"):
            raise field_error("grammar", "it must be given exactly when the type is 'grammar'")
        return self


class CustomDefinition(ClientBody):
    """The name, purpose and form of a custom tool. The model reads its grammar as part of the description; a regex also
    holds where a call is required."""

    name: FunctionName
    description: Description | None = None
    format: InputFormat | None = None

    def as_function(self) -> FunctionDefinition:
        """Return the function that the model sees."""
        described, text = self.description or "", {"type": "string"}
        grammar = None if self.format is None else self.format.grammar
        if grammar is not None:
            described += f"\n\nThe input must match this {_SYNTAX[grammar.syntax]}:\n{grammar.definition}"
            if grammar.syntax == "regex":
                text["pattern"] = f"^(?:{grammar.definition})$"
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {_INPUT: text},
            "required": [_INPUT],
            "additionalProperties": False,
        }
        return FunctionDefinition(name=self.name, description=described.strip(), parameters=parameters)


class CustomTool(ClientBody):
    """A custom tool as an entry of `tools`."""

    extras = ExtraFields(ignored=("cache_control",))

    type: Literal["custom"]
    custom: CustomDefinition

    def as_tool(self) -> Tool:
        """Return the tool that the model sees."""
        return Tool(type="function", function=self.custom.as_function())


AnyTool = Annotated[Annotated[Tool, Function] | Annotated[CustomTool, Custom], ByKind, BeforeValidator(check_kind)]
"""One entry of `tools`."""


class CalledCustomTool(ClientBody):
    """The called tool and its input."""

    name: FunctionName
    input: str


class CustomToolCall(ClientBody):
    """A call of a custom tool in an assistant message's `tool_calls`."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    type: Literal["custom"]
    custom: CalledCustomTool

    @property
    def function(self) -> CalledFunction:
        """The call of the function that the model sees."""
        return CalledFunction(name=self.custom.name, arguments=dump_json({_INPUT: self.custom.input}))


AnyToolCall = Annotated[
    Annotated[MessageToolCall, Function] | Annotated[CustomToolCall, Custom], ByKind, BeforeValidator(check_kind)
]
"""One entry of an assistant message's `tool_calls`."""


def input_of(arguments: str) -> str:
    """Return the input that is in a function's arguments; the arguments as they are, if the model wrote no such
    argument."""
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    text = value.get(_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
