"""Errors of Anthropic's Messages API, in its own form."""

from typing import Any

from loragate.gateway.errors import OVERLOADED

REQUEST_ID = "request-id"
"""The header in which Anthropic's clients look for a request's id."""

_PATH = "/v1/messages"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def has_message_errors(path: str) -> bool:
    """Return whether errors at this path have Anthropic's form."""
    return path == _PATH or path.startswith(f"{_PATH}/")


def message_error(status: int, message: str, code: str | None, request_id: str) -> dict[str, Any]:
    """Return the error object. Its message names the field at fault, for which it has no field."""
    error = {"type": _type(status, code), "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def _type(status: int, code: str | None) -> str:
    if status >= 500:
        return "overloaded_error" if code == OVERLOADED else "api_error"
    return _TYPES.get(status, "invalid_request_error")
