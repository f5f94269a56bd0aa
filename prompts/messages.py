"""Chat messages: roles, contents as text or as a list of text parts, tool calls and their results."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.tools import MAX_TOOLS, MessageToolCall
from loragate.prompts.validation import Body, field_error

# Fields that clients send back when they append a response unchanged. Empty ones are ignored.
_EMPTY_ALLOWED = ("annotations", "audio", "function_call", "refusal", "tool_calls", "reasoning_content")


def _text_of(content: Any) -> Any:
    """Join parts of type text; reject any other part."""
    if not isinstance(content, list):
        return content
    return "".join(_text_of_part(part) for part in content)


def _text_of_part(part: Any) -> str:
    if not isinstance(part, dict) or part.keys() - {"type", "text"} or not isinstance(part.get("text"), str):
        message = "only parts of the form {'type': 'text', 'text': …} are supported"
        raise PydanticCustomError("content_part", "{message}", {"message": message})
    if part.get("type") != "text":
        raise PydanticCustomError("content_part", "only parts of type 'text' are supported", {})
    return str(part["text"])


class TextPart(Body):
    """One part of a message's content."""

    type: Literal["text"]
    text: str


class ChatMessage(Body):
    """One message. `developer` is OpenAI's newer name for `system`; chat templates know the older one."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_text_of, json_schema_input_type=str | list[TextPart] | None)] = None
    name: Annotated[str, StringConstraints(max_length=256)] | None = None
    tool_calls: Annotated[list[MessageToolCall], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_call_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_fields(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        kept = {
            key: value for key, value in message.items() if key not in _EMPTY_ALLOWED or value not in (None, [], "")
        }
        for field, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
            if kept.get(field) is not None and kept.get("role") != role:
                raise field_error(field, f"it is only allowed in messages of role '{role}'")
        return kept

    @model_validator(mode="after")
    def _require_content(self) -> "ChatMessage":
        if self.content is None and not self.tool_calls:
            raise field_error("content", "this field is required")
        if self.role == "tool" and self.tool_call_id is None:
            raise field_error("tool_call_id", "this field is required")
        return self


def check_tool_results(messages: Sequence[ChatMessage]) -> None:
    """Check that each message with calls is directly followed by one result per call, and that there are no other
    results. Raise a field error."""
    caller, open_calls = 0, set[str]()
    for position, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                reason = "it does not match a tool call of the preceding assistant message"
                raise field_error(f"messages.{position}.tool_call_id", reason)
            open_calls.discard(message.tool_call_id)
            continue
        if open_calls:
            break
        caller, open_calls = position, {call.id for call in message.tool_calls or ()}
        if len(open_calls) < len(message.tool_calls or ()):
            raise field_error(f"messages.{position}.tool_calls", "two calls have the same id")
    if open_calls:
        reason = "each call needs a result: a message of role 'tool' directly after this message"
        raise field_error(f"messages.{caller}.tool_calls", reason)
