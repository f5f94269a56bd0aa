"""What a request holds its completions to."""

from dataclasses import dataclass

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.generation.tool_choice import calls_or, forced_calls
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.request_tools import ToolUse
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
