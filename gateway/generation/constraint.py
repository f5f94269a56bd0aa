"""What a request holds its completions to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.tools import ToolFields
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.message import ToolUse
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Constraint:
    """Each completion must match `grammar`, whole. `field` is the request's that asks for it."""

    grammar: pb.Grammar
    field: str


def constraint(body: OutputFields) -> Constraint | None:
    """None where any text will do."""
    if body.structured_outputs is not None:
        return Constraint(body.structured_outputs.engine_grammar, "structured_outputs")
    if body.response_format is None or body.response_format.grammar is None:
        return None
    return Constraint(body.response_format.grammar, "response_format")


def chat_constraint(base: BaseModel, body: ChatRequest, tools: ToolUse | None) -> Constraint | None:
    """A call that must be made goes before the format of an answer; one that may be made stays possible beside it."""
    forced = forced_calls(base, body, tools)
    if forced is not None:
        return Constraint(forced, "tools")
    if tools is None:
        return constraint(body)
    if body.structured_outputs is not None:
        words = "it cannot be combined with 'tools' unless 'tool_choice' is 'none'"
        raise InvalidRequest(f"Invalid 'structured_outputs': {words}.", param="structured_outputs")
    if body.response_format is None or body.response_format.schema_of_answer is None:
        return None
    return Constraint(calls_or(base, tools, body.response_format.schema_of_answer), "response_format")


_MOST_FORCED_CALLS = 16  # a weak model that may always write one more call does
_OPEN = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "not", "if", "$ref")


def tool_use(base: BaseModel, body: ToolFields) -> ToolUse | None:
    """None where no tool may be called. Raises InvalidRequest where the model knows none."""
    usable = body.usable_tools
    if not usable:
        return None
    if base.chat_template is not None and not base.chat_template.takes_tools:
        raise InvalidRequest(
            f"The chat template of the base model '{base.id}' knows no tools.",
            param="tools",
            code="tools_not_supported",
        )
    named = body.tool_choice is not None and body.tool_choice.type == "function"
    names = body.tool_choice.names if named and body.tool_choice else None
    tools = {tool.function.name: tool.function.arguments_schema for tool in usable}
    return ToolUse(
        base.tool_format,
        {name: schema for name, schema in tools.items() if names is None or name in names},
        parallel=body.parallel_tool_calls is not False,
        named=named,
    )


def forced_calls(base: BaseModel, body: ToolFields, use: ToolUse | None) -> pb.Grammar | None:
    """What the completions must match where there must be a call; a named function is called once."""
    if use is None or body.tool_choice is None or not body.tool_choice.forced:
        return None
    lark = Lark(base.tool_tokens)
    return pb.Grammar(lark=lark.source(_calls(lark, use)))


def calls_or(base: BaseModel, use: ToolUse, schema: Mapping[str, Any]) -> pb.Grammar:
    """Where there may be calls, or an answer that fits the schema."""
    lark = Lark(base.tool_tokens)
    return pb.Grammar(lark=lark.source(lark.either([lark.json(schema), _calls(lark, use)])))


def _calls(lark: Lark, use: ToolUse) -> str:
    most = _MOST_FORCED_CALLS if use.parallel and not use.named else 1
    closed = {name: _closed(schema) for name, schema in use.tools.items()}
    return use.format.write(lark, closed, max_calls=most)


def _closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the properties that a schema allows by not forbidding them: a weak model would write no others."""
    return schema if any(key in schema for key in _OPEN) else {"additionalProperties": False, **schema}
