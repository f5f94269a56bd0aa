"""Request bodies and responses of one route, with their examples."""

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.openapi.examples.requests import REQUESTS
from loragate.gateway.openapi.examples.responses import RESPONSES
from loragate.gateway.openapi.headers import header_references
from loragate.gateway.openapi.responses import RouteDescription
from loragate.gateway.openapi.schemas import reference


def request_of(body: JsonBody[Any] | None, declared: RouteDescription) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if declared.form is not None:
        content["multipart/form-data"] = {"schema": dict(declared.form)}
    if body is not None:
        examples = {name: {"summary": name, "value": value} for name, value in REQUESTS[body.model].items()}
        content["application/json"] = {"schema": reference(body.model.__name__), "examples": examples}
    required = body is None or not body.optional
    return {"required": required, "content": content} if content else {}


def response_of(declared: RouteDescription, headers: tuple[str, ...]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if declared.json:
        content["application/json"] = _content(declared.response)
    if declared.events is not None:
        content["text/event-stream"] = _stream(declared.events, declared.error_shape)
    for media, words in declared.media.items():
        content[media] = {"schema": {"type": "string", "description": words}}
    return {"description": "Success.", "headers": header_references(*headers, *declared.headers), "content": content}


def other_response(shape: Any) -> dict[str, Any]:
    description = (shape.__doc__ or "").strip()
    return {
        "description": description,
        "headers": header_references(),
        "content": {"application/json": _content(shape)},
    }


def _content(shape: Any) -> Mapping[str, Any]:
    if shape is None:
        return {"schema": {}}
    return {"schema": reference(shape.__name__), "example": RESPONSES[shape]}


def _stream(event: Any, error: type) -> dict[str, Any]:
    """Before OpenAPI 3.2, the schema of an event stream is the schema of its events."""
    words = cleandoc(event.__doc__ or "")
    payload = {"anyOf": [reference(event.__name__), reference(error.__name__)]}
    json = {"type": "string", "contentMediaType": "application/json", "contentSchema": payload}
    data = {"anyOf": [{"const": "[DONE]"}, json]}
    return {"schema": {"type": "object", "description": words, "properties": {"data": data}, "required": ["data"]}}
