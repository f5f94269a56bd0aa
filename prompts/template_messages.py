"""Messages in the form that chat templates expect."""

import hashlib
from collections.abc import Sequence
from typing import Any

from loragate.prompts.custom_tools import AnyToolCall
from loragate.prompts.json_text import parse_json
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_traits import TemplateTraits

_CHARACTERS_OF_A_MESSAGE = 64  # rendering an empty message takes about as long as this many characters


class CallArguments(dict[str, Any]):
    """The arguments of a call: an object for templates that want one, its JSON text for templates that concatenate
    it."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: str) -> str:
        return self.text + other

    def __radd__(self, other: str) -> str:
        return other + self.text


def template_messages(messages: Sequence[ChatMessage], traits: TemplateTraits) -> list[dict[str, Any]]:
    """Return the messages for a template. A tool result gets its function's name, which OpenAI's clients do not repeat
    and some templates want."""
    called: dict[str, str] = {}
    rendered = []
    for message in messages:
        fields: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
        fields["content"] = message.content if message.content is not None or traits.null_content else ""
        if message.reasoning:
            _add_reasoning(fields, message.reasoning, traits)
        if message.name is not None:
            fields["name"] = message.name
        if message.tool_calls:
            called = {call.id: call.function.name for call in message.tool_calls}
            fields["tool_calls"] = [_call(call, traits) for call in message.tool_calls]
        if message.tool_call_id is not None:
            fields["tool_call_id"] = _id(message.tool_call_id, traits)
            fields.setdefault("name", called.get(message.tool_call_id))
        rendered.append(fields)
    return rendered


def _add_reasoning(fields: dict[str, Any], reasoning: str, traits: TemplateTraits) -> None:
    """Add the reasoning where the template reads it; a template that reads none omits it, as its model expects."""
    if traits.reasoning_parts:
        content = [{"type": "thinking", "thinking": reasoning, "closed": True}]
        fields["content"] = content + ([{"type": "text", "text": fields["content"]}] if fields["content"] else [])
    for name in traits.reasoning_fields:
        fields[name] = reasoning


def rendered_size(messages: Sequence[ChatMessage]) -> int:
    """Return the cost of rendering the messages, in characters."""
    calls = [call for message in messages for call in message.tool_calls or ()]
    characters = sum(len(message.content or "") + len(message.reasoning or "") for message in messages)
    characters += sum(len(call.function.arguments) for call in calls)
    return characters + _CHARACTERS_OF_A_MESSAGE * (len(messages) + len(calls))


def _call(call: AnyToolCall, traits: TemplateTraits) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    return {"id": _id(call.id, traits), "type": "function", "function": function}


def _arguments(text: str) -> CallArguments | str:
    """Text that is not a JSON object is passed on unchanged."""
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return CallArguments(text, value) if isinstance(value, dict) else text


def _id(call_id: str, traits: TemplateTraits) -> str:
    if not traits.short_call_ids or (len(call_id) == 9 and call_id.isalnum()):
        return call_id
    return hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:9]
