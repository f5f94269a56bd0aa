"""Error responses, as components of the document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loragate.gateway.errors import envelope, error_type
from loragate.gateway.http.message_errors import REQUEST_ID, message_error
from loragate.gateway.objects.common import ErrorEnvelope
from loragate.gateway.objects.inference.messages import MessageError
from loragate.gateway.openapi.headers import HEADERS, header_references
from loragate.gateway.openapi.schemas import reference as schema_reference


@dataclass(frozen=True)
class ErrorResponse:
    """One status, with an example of its envelope. `headers` names headers in addition to those of every response."""

    name: str
    description: str
    message: str
    code: str
    param: str | None = None
    headers: tuple[str, ...] = ()


ERROR_RESPONSES: Mapping[int, ErrorResponse] = {
    400: ErrorResponse(
        "InvalidRequest",
        "The request is invalid; `param` names the field at fault.",
        "Invalid 'temperature': Input should be less than or equal to 2.",
        "invalid_value",
        "temperature",
    ),
    401: ErrorResponse(
        "Unauthenticated",
        "There is no key, or it is not valid.",
        "This API key is not valid.",
        "invalid_api_key",
        headers=("www-authenticate",),
    ),
    403: ErrorResponse(
        "Forbidden",
        "The key is valid but does not permit this.",
        "This key lacks the scope 'adapters:write'.",
        "insufficient_scope",
    ),
    404: ErrorResponse(
        "NotFound",
        "The object does not exist, or the key has no access to it.",
        "The model 'haiku' does not exist or you do not have access to it.",
        "model_not_found",
        "model",
    ),
    408: ErrorResponse(
        "RequestTimeout",
        "The client stopped sending its body.",
        "No bytes of the body came for 60 seconds.",
        "request_timeout",
    ),
    409: ErrorResponse(
        "Conflict",
        "The request conflicts with the current state of the object.",
        "A tenant with this name exists.",
        "name_taken",
        "name",
    ),
    413: ErrorResponse(
        "PayloadTooLarge",
        "The body exceeds the route's limit.",
        "The body exceeds this route's limit of 8388608 bytes.",
        "request_too_large",
    ),
    415: ErrorResponse(
        "UnsupportedMediaType",
        "The route does not accept bodies of this type or encoding.",
        "Send the body as application/json.",
        "unsupported_media_type",
        "content-type",
    ),
    429: ErrorResponse(
        "RateLimited",
        "A limit of the tenant, the key or the adapter is reached, or the caller's own requests fill its queue.",
        "Rate limit reached for this key: limit of 60 requests per minute. Please try again in 1.000s.",
        "rate_limit_exceeded",
        headers=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit"),
    ),
    500: ErrorResponse(
        "InternalError",
        "The server failed. Quote the request id when reporting the problem.",
        "The server failed on this request. Quote the request id req_0f9c when asking why.",
        "internal_error",
    ),
    503: ErrorResponse(
        "Unavailable",
        "A part that the request needs is unavailable, or the server is shutting down. Send the request again.",
        "The engine is not available at the moment.",
        "engine_unavailable",
        headers=("retry-after", "retry-after-ms"),
    ),
    507: ErrorResponse(
        "InsufficientStorage",
        "The server's disk is full.",
        "The disk is full.",
        "insufficient_storage",
    ),
}


def error_components() -> dict[str, Any]:
    """Return `components.responses`."""
    return {
        _name(error, shape): _response(status, error, shape)
        for shape in (ErrorEnvelope, MessageError)
        for status, error in ERROR_RESPONSES.items()
    }


def reference(status: int, shape: type) -> dict[str, str]:
    """Return a reference to the error response of this status whose body has this type."""
    return {"$ref": f"#/components/responses/{_name(ERROR_RESPONSES[status], shape)}"}


def _name(error: ErrorResponse, shape: type) -> str:
    return f"Message{error.name}" if shape is MessageError else error.name


def _response(status: int, error: ErrorResponse, shape: type) -> dict[str, Any]:
    own = (REQUEST_ID,) if shape is MessageError else ()
    content = {"schema": schema_reference(shape.__name__), "example": _example(status, error, shape)}
    return {
        "description": error.description,
        "headers": header_references(*error.headers, *own),
        "content": {"application/json": content},
    }


def _example(status: int, error: ErrorResponse, shape: type) -> dict[str, Any]:
    if shape is MessageError:
        return message_error(status, error.message, error.code, HEADERS[REQUEST_ID].example)
    return envelope(error.message, error_type(status), error.param, error.code)
