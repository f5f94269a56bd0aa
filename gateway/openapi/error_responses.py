"""Refusals, as components of the document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loragate.gateway.http.envelope import envelope, error_type
from loragate.gateway.openapi.headers import header_references


@dataclass(frozen=True)
class Refusal:
    """One status, with an example of its envelope. `headers` name components beside those of every answer."""

    name: str
    description: str
    message: str
    code: str
    param: str | None = None
    headers: tuple[str, ...] = ()


REFUSALS: Mapping[int, Refusal] = {
    400: Refusal(
        "InvalidRequest",
        "The request is wrong; `param` names the field.",
        "Invalid 'temperature': Input should be less than or equal to 2.",
        "invalid_value",
        "temperature",
    ),
    401: Refusal(
        "Unauthenticated",
        "No key, or one that is not valid.",
        "This API key is not valid.",
        "invalid_api_key",
        headers=("www-authenticate",),
    ),
    403: Refusal(
        "Forbidden",
        "A good key that may not do this.",
        "This key lacks the scope 'adapters:write'.",
        "insufficient_scope",
    ),
    404: Refusal(
        "NotFound",
        "Missing, or somebody else's.",
        "The model 'haiku' does not exist or you do not have access to it.",
        "model_not_found",
        "model",
    ),
    408: Refusal(
        "RequestTimeout",
        "The client stopped sending its body.",
        "No bytes of the body came for 60 seconds.",
        "request_timeout",
    ),
    409: Refusal(
        "Conflict",
        "The request is right, but the state of things forbids it.",
        "A tenant with this name exists.",
        "name_taken",
        "name",
    ),
    413: Refusal(
        "PayloadTooLarge",
        "The body is over the route's limit.",
        "The body exceeds this route's limit of 8388608 bytes.",
        "request_too_large",
    ),
    415: Refusal(
        "UnsupportedMediaType",
        "The body is of a type or encoding that the route does not read.",
        "Send the body as application/json.",
        "unsupported_media_type",
        "content-type",
    ),
    429: Refusal(
        "RateLimited",
        "A limit of the tenant, the key or the adapter has no room, or the caller's own requests fill its queue.",
        "Rate limit reached for this key: limit of 60 requests per minute. Please try again in 1.000s.",
        "rate_limit_exceeded",
        headers=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit"),
    ),
    500: Refusal(
        "InternalError",
        "The server failed. The request id leads to the reason.",
        "The server failed on this request. Quote the request id req_0f9c when asking why.",
        "internal_error",
    ),
    503: Refusal(
        "Unavailable",
        "A part that the request needs is away, or the server is stopping: send the request again.",
        "The engine is not available at the moment.",
        "engine_unavailable",
        headers=("retry-after", "retry-after-ms"),
    ),
    507: Refusal(
        "InsufficientStorage",
        "The server's disk is full.",
        "The disk is full.",
        "insufficient_storage",
    ),
}


def refusal_components() -> dict[str, Any]:
    """`components.responses`."""
    return {refusal.name: _response(status, refusal) for status, refusal in REFUSALS.items()}


def reference(status: int) -> dict[str, str]:
    """A refusal's response."""
    return {"$ref": f"#/components/responses/{REFUSALS[status].name}"}


def _response(status: int, refusal: Refusal) -> dict[str, Any]:
    example = envelope(refusal.message, error_type(status), refusal.param, refusal.code)
    schema = {"$ref": "#/components/schemas/ErrorEnvelope"}
    return {
        "description": refusal.description,
        "headers": header_references(*refusal.headers),
        "content": {"application/json": {"schema": schema, "example": example}},
    }
