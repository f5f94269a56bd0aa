"""Items of a request's input, in the shape in which they are stored and returned."""

from collections.abc import Mapping, Sequence
from typing import Any

from loragate.gateway.objects.inference.responses import new_item_id
from loragate.gateway.schemas.inference.response_items import (
    CustomCallInput,
    FunctionCallInput,
    FunctionOutputItem,
    InputItem,
    MessageItem,
    ReasoningInput,
    RefusalContent,
    TextContent,
    text_of,
)

Item = Mapping[str, Any]


def stored_items(items: Sequence[InputItem], response_id: str = "") -> list[Item]:
    """Return the items, each with an id and a status. An id that the client gave stays; others are made for the
    response, if there is one."""
    return [_item(item, response_id) for item in items]


def _item(item: InputItem, of: str) -> Item:
    match item:
        case MessageItem():
            content = [_part(part, item.role) for part in item.content]
            return {**_head(item, "message", "msg", of), "role": item.role, "content": content}
        case FunctionCallInput():
            return {**_call(item, "function_call", "fc", of), "arguments": item.arguments}
        case CustomCallInput():
            return {**_call(item, "custom_tool_call", "ctc", of), "input": item.input}
        case FunctionOutputItem():
            prefix = "fco" if item.type == "function_call_output" else "ctco"
            return {**_head(item, item.type, prefix, of), "call_id": item.call_id, "output": text_of(item.output)}
        case ReasoningInput():
            return {
                **_head(item, "reasoning", "rs", of),
                "summary": [part.model_dump() for part in item.summary or ()],
                "content": [part.model_dump() for part in item.content or ()],
                "encrypted_content": None,
            }


def _head(item: InputItem, kind: str, prefix: str, of: str) -> dict[str, Any]:
    return {"id": item.id or new_item_id(prefix, of), "type": kind, "status": item.status or "completed"}


def _call(item: FunctionCallInput | CustomCallInput, kind: str, prefix: str, of: str) -> dict[str, Any]:
    fields = {**_head(item, kind, prefix, of), "call_id": item.call_id, "name": item.name}
    return fields if item.namespace is None else {**fields, "namespace": item.namespace}


def _part(part: TextContent | RefusalContent, role: str) -> dict[str, Any]:
    if isinstance(part, RefusalContent):
        return {"type": "refusal", "refusal": part.refusal}
    if role == "assistant":
        return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": part.text}
