"""Conversion of a request for a response into the equivalent chat request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.response_items import (
    NOT_STORED,
    CustomCallInput,
    FunctionCallInput,
    FunctionOutputItem,
    ItemReference,
    ReasoningInput,
    text_of,
)
from loragate.gateway.schemas.inference.response_tools import (
    ResponseAllowedTools,
    ResponseCustomTool,
    ResponseNamedTool,
    ResponseTool,
)
from loragate.gateway.schemas.inference.responses import ResponseJsonSchema, ResponseRequest
from loragate.gateway.schemas.validation import validated

# Field of the chat request → the field that the caller sent.
_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
}


def chat_request(body: ResponseRequest) -> ChatRequest:
    """Return the chat request that is equivalent to `body`. Raise InvalidRequest, which names the fields of `body`."""
    chat: dict[str, Any] = {
        "model": body.model,
        "messages": _messages(body),
        "max_completion_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "tools": [_tool(tool) for tool in body.tools] if body.tools else None,
        "tool_choice": _choice(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": _format(body),
        "logprobs": body.wants_logprobs,
        "top_logprobs": body.top_logprobs,
        "reasoning_effort": None if body.reasoning is None else body.reasoning.effort,
        "user": body.user,
        "safety_identifier": body.safety_identifier,
    }
    with renamed_fields():
        return validated(ChatRequest, chat)


def unresolved(number: int) -> InvalidRequest:
    """Return the error of a reference, the item of this number, where no items are stored."""
    param = f"input.{number}.type"
    return InvalidRequest(f"Invalid '{param}': {NOT_STORED}.", param=param)


@contextmanager
def renamed_fields() -> Iterator[None]:
    """Make errors about the chat request name the fields of the request for a response."""
    try:
        yield
    except InvalidRequest as error:
        head = (error.param or "").partition(".")[0]
        if head not in _NAMES:
            raise
        # Messages do not correspond to items one to one, so the message does not name the item at fault.
        message = error.message.replace(f"'{error.param}'", f"'{_NAMES[head]}'")
        raise InvalidRequest(message, param=_NAMES[head], code=error.code) from None


def _messages(body: ResponseRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    thought = ""
    for number, item in enumerate(body.input):
        if isinstance(item, ItemReference):
            raise unresolved(number)
        if isinstance(item, ReasoningInput):
            thought += item.text
            continue
        if isinstance(item, FunctionCallInput | CustomCallInput):
            _add_call(messages, item)
        elif isinstance(item, FunctionOutputItem):
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)})
        else:
            messages.append({"role": item.role, "content": text_of(item.content)})
        if thought and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning"], thought = messages[-1].get("reasoning", "") + thought, ""
    return messages


def _add_call(messages: list[dict[str, Any]], item: FunctionCallInput | CustomCallInput) -> None:
    """Add the call to the assistant's message directly before it, or to a new message."""
    call: dict[str, Any] = {"id": item.call_id}
    if isinstance(item, CustomCallInput):
        call |= {"type": "custom", "custom": {"name": item.name, "input": item.input}}
    else:
        call |= {"type": "function", "function": {"name": item.name, "arguments": item.arguments}}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _tool(tool: ResponseTool | ResponseCustomTool) -> dict[str, Any]:
    fields = tool.model_dump(exclude={"type", "namespace"}, exclude_none=True)
    if isinstance(tool, ResponseCustomTool) and tool.format is not None:
        fields["format"] = {"type": tool.format.type}
        if tool.format.type == "grammar":
            fields["format"]["grammar"] = tool.format.model_dump(include={"syntax", "definition"})
    return {"type": tool.type, tool.type: fields}


def _choice(choice: Any) -> Any:
    match choice:
        case ResponseNamedTool():
            return _named(choice)
        case ResponseAllowedTools(mode=mode, tools=tools):
            allowed = {"mode": mode, "tools": [_named(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice


def _named(tool: ResponseNamedTool) -> dict[str, Any]:
    return {"type": tool.type, tool.type: {"name": tool.name}}


def _format(body: ResponseRequest) -> dict[str, Any] | None:
    given = None if body.text is None else body.text.format
    if isinstance(given, ResponseJsonSchema):
        return {
            "type": "json_schema",
            "json_schema": given.model_dump(by_alias=True, exclude={"type"}, exclude_none=True),
        }
    return None if given is None else {"type": given.type}
