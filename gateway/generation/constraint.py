"""Constraints on the completions of a request: response formats, structured outputs and the choice of tools."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.tools import ToolFields
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.formats.harmony import MARKS
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.message import ToolUse
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Constraint:
    """The grammar that each completion must match as a whole. `field` is the request's field that asks for it."""

    grammar: pb.Grammar
    field: str


def after_headers(base: BaseModel, found: Constraint | None) -> Constraint | None:
    """Return the constraint of an answer before which the model writes a header. Raise InvalidRequest for a grammar
    that cannot follow one."""
    if found is None or base.reasoning is None or not base.reasoning.answer_headers or found.field == "tools":
        return found
    added = base.tokenizer.added_tokens
    lark = Lark({mark: added[mark] for mark in MARKS})
    headers = lark.either(map(lark.text, base.reasoning.answer_headers))
    match found.grammar.WhichOneof("kind"):
        case "json_schema":
            answer = lark.json(json.loads(found.grammar.json_schema))
        case "json_object":
            answer = lark.json({"type": "object"})
        case "choice":
            answer = lark.either(map(lark.text, found.grammar.choice.options))
        case kind:
            raise InvalidRequest(
                f"Invalid '{found.field}': the base model '{base.id}' writes a header before an answer, which {kind} "
                "cannot follow: use a JSON schema or a choice.",
                param=found.field,
                code="grammar_not_supported",
            )
    return Constraint(pb.Grammar(lark=lark.source(lark.sequence(headers, answer))), found.field)


def constraint(body: OutputFields) -> Constraint | None:
    """Return the constraint of the request; None if any text is allowed."""
    if body.structured is not None:
        return Constraint(body.structured.engine_grammar, body.structured_field)
    if body.response_format is None or body.response_format.grammar is None:
        return None
    return Constraint(body.response_format.grammar, "response_format")


def chat_constraint(base: BaseModel, body: ChatRequest, tools: ToolUse | None) -> Constraint | None:
    """Return the constraint of a chat's answers, which follow the reasoning."""
    return after_headers(base, _chat_constraint(base, body, tools))


def _chat_constraint(base: BaseModel, body: ChatRequest, tools: ToolUse | None) -> Constraint | None:
    """Return the constraint of a chat request. A required call takes precedence over the format of the response; an
    optional call remains possible in addition to it."""
    forced = forced_calls(base, body, tools)
    if forced is not None:
        return Constraint(forced, "tools")
    if tools is None:
        return constraint(body)
    if body.structured is not None:
        field, words = body.structured_field, "it cannot be combined with 'tools' unless 'tool_choice' is 'none'"
        raise InvalidRequest(f"Invalid '{field}': {words}.", param=field)
    if body.response_format is None or body.response_format.required_schema is None:
        return None
    return Constraint(calls_or(base, tools, body.response_format.required_schema), "response_format")


_MAX_FORCED_CALLS = 16  # a weak model that may always add a call would do so without end
_OPEN = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "not", "if", "$ref")


def tool_use(base: BaseModel, body: ToolFields) -> ToolUse | None:
    """Return the tools that may be called; None if there are none. Raise InvalidRequest if the model does not support
    tools."""
    usable = body.usable_tools
    if not usable:
        return None
    check_takes_tools(base)
    choice = body.choice
    named = choice is not None and choice.named
    names = choice.names if named and choice else None
    tools = {tool.function.name: tool.function.arguments_schema for tool in usable}
    return ToolUse(
        base.tool_format,
        {name: schema for name, schema in tools.items() if names is None or name in names},
        parallel=body.parallel_tool_calls is not False and not body.functions,
        named=named,
        as_function_call=bool(body.functions),
        custom=body.custom_tools,
    )


def check_takes_tools(base: BaseModel) -> None:
    """Raise InvalidRequest if the model does not support tools."""
    if base.chat_template is not None and not base.chat_template.takes_tools:
        raise InvalidRequest(
            f"The chat template of the base model '{base.id}' does not support tools.",
            param="tools",
            code="tools_not_supported",
        )


def forced_calls(base: BaseModel, body: ToolFields, use: ToolUse | None) -> pb.Grammar | None:
    """Return the grammar of the calls, if a call is required; a named function is called once."""
    choice = body.choice
    if use is None or choice is None or not choice.forced:
        return None
    lark = Lark(base.tool_tokens)
    return pb.Grammar(lark=lark.source(_calls(lark, use)))


def calls_or(base: BaseModel, use: ToolUse, schema: Mapping[str, Any]) -> pb.Grammar:
    """Return a grammar that allows either calls or a response that matches the schema."""
    lark = Lark(base.tool_tokens)
    return pb.Grammar(lark=lark.source(lark.either([lark.json(schema), _calls(lark, use)])))


def _calls(lark: Lark, use: ToolUse) -> str:
    max_calls = _MAX_FORCED_CALLS if use.parallel and not use.named else 1
    closed = {name: _closed(schema) for name, schema in use.tools.items()}
    return use.format.write(lark, closed, max_calls=max_calls)


def _closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without properties that it allows only by not forbidding them: a weak model would write nothing
    else."""
    return schema if any(key in schema for key in _OPEN) else {"additionalProperties": False, **schema}
