"""Chat messages: roles, contents as text or as a list of text parts, tool calls and their results."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error
from loragate.prompts.custom_tools import AnyToolCall
from loragate.prompts.tools import MAX_TOOLS

# Fields that clients send back when they append a response unchanged. Empty ones are ignored.
_EMPTY_ALLOWED = ("function_call", "refusal", "tool_calls", "reasoning")
_OF_PARTS = ExtraFields(ignored=("annotations", "cache_control", "prompt_cache_breakpoint"))
_PARTS = ("text", "refusal")


def _text_of(content: Any) -> Any:
    """Join parts of type text; reject any other part."""
    if not isinstance(content, list):
        return content
    return "".join(_text_of_part(part) for part in content)


def _text_of_part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _PARTS:
        raise PydanticCustomError("content_part", "this server reads text only: send parts of type 'text'", {})
    part = _OF_PARTS.removed_from(part)
    if part.keys() - {"type", kind} or not isinstance(part.get(kind), str):
        message = f"only parts of the form {{'type': '{kind}', '{kind}': …}} are supported"
        raise PydanticCustomError("content_part", "{message}", {"message": message})
    return str(part[kind])


class TextPart(ClientBody):
    """One part of a message's content. `cache_control` has no effect: a prefix that repeats is always cached."""

    extras = _OF_PARTS

    type: Literal["text"]
    text: str


class RefusalPart(ClientBody):
    """A part of an assistant's message that is sent back; its text is part of the content."""

    extras = _OF_PARTS

    type: Literal["refusal"]
    refusal: str


def _describe(schema: dict[str, Any], body: type["ChatMessage"]) -> None:
    body.extras.describe(schema)
    schema["properties"]["refusal"] = {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "The assistant's words, after those of `content`.",
    }


class ChatMessage(ClientBody):
    """One message. `developer` is OpenAI's newer name for `system`; chat templates know the older one."""

    model_config = ConfigDict(json_schema_extra=_describe)
    # `parsed` is what OpenAI's helpers add to a response, and `cache_control` a mark for another server's cache.
    extras = ExtraFields(
        ignored=("annotations", "parsed", "cache_control"),
        refused={
            "audio": Refused("this server reads and writes text only: send the transcript as the content", ([], ""))
        },
    )

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | None, BeforeValidator(_text_of, json_schema_input_type=str | list[TextPart | RefusalPart] | None)
    ] = None
    name: Annotated[str, StringConstraints(max_length=256)] | None = None
    tool_calls: Annotated[list[AnyToolCall], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_call_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    reasoning: str | None = None  # of the assistant, before its content

    @model_validator(mode="before")
    @classmethod
    def _read_other_forms(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        message = dict(message)
        older = message.pop("reasoning_content", None)  # DeepSeek's name
        if older is not None and message.get("reasoning") is None:
            message["reasoning"] = older
        kept = {name: value for name, value in message.items() if name not in _EMPTY_ALLOWED or value not in ([], "")}
        if kept.get("role") == "assistant" and "refusal" in kept:
            kept["content"] = _with_refusal(kept.get("content"), kept.pop("refusal"))
        for field, role in (("tool_calls", "assistant"), ("tool_call_id", "tool"), ("reasoning", "assistant")):
            if kept.get(field) is not None and kept.get("role") != role:
                raise field_error(field, f"it is only allowed in messages of role '{role}'")
        return kept

    @model_validator(mode="after")
    def _require_content(self) -> "ChatMessage":
        if self.content is None and not self.tool_calls and self.reasoning is None:
            raise field_error("content", "this field is required")
        if self.role == "tool" and self.tool_call_id is None:
            raise field_error("tool_call_id", "this field is required")
        return self


def _with_refusal(content: Any, refusal: Any) -> Any:
    """Return an assistant's content with its refusal as the last part."""
    if refusal is None or not isinstance(content, str | list | None):
        return content
    if not isinstance(refusal, str):
        raise field_error("refusal", "it must be a string")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [*parts, {"type": "refusal", "refusal": refusal}]


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
