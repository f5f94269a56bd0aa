"""The errors that a caller can receive. Each class defines its HTTP status and OpenAI's `type`.

ApiError
├── InvalidRequest          400
│   └── ContextLengthExceeded
├── Unauthenticated         401
├── Forbidden               403
├── NotFound                404
├── RequestTimeout          408
├── PayloadTooLarge         413
├── UnsupportedMediaType    415
├── TooManyRequests         429, with retry-after
├── InternalError           500
└── Unavailable             503, with retry-after
    └── ShuttingDown
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from loragate.adapter_store import errors as store_errors
from loragate.adapter_store.errors import StoreError

OVERLOADED = "overloaded"
"""The code of requests that are rejected because of load."""


class ApiError(Exception):
    """An error response. `param` is the dotted path of the invalid field, `code` is for programs."""

    status: ClassVar[int]
    type: ClassVar[str] = "invalid_request_error"
    default_code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code

    @property
    def headers(self) -> Mapping[str, str]:
        """Response headers that belong to this error."""
        return {}


class InvalidRequest(ApiError):
    """The request itself is invalid, so repeating it does not help."""

    status = 400


class ContextLengthExceeded(InvalidRequest):
    """The prompt does not fit the context, or leaves no room for `completion_tokens`, if they are given."""

    default_code = "context_length_exceeded"

    def __init__(
        self, message: str, *, param: str, limit: int, prompt_tokens: int, completion_tokens: int | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.limit = limit
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens


class Unauthenticated(ApiError):
    """The key is missing, unknown, revoked or expired; the response does not say which."""

    status = 401
    default_code = "invalid_api_key"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"www-authenticate": 'Bearer realm="loragate"'}


class Forbidden(ApiError):
    """The key is valid but lacks the permission."""

    status = 403
    type = "permission_error"
    default_code = "insufficient_scope"


class NotFound(ApiError):
    """It does not exist or belongs to another tenant; the response does not say which."""

    status = 404
    default_code = "not_found"


class RequestTimeout(ApiError):
    """The client stopped sending its body."""

    status = 408
    default_code = "request_timeout"


class PayloadTooLarge(ApiError):
    """The body exceeds the limit of its route."""

    status = 413
    default_code = "request_too_large"


class UnsupportedMediaType(ApiError):
    """The route does not support the body's type or encoding."""

    status = 415
    default_code = "unsupported_media_type"


class TooManyRequests(ApiError):
    """The caller's own requests exceed a limit."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def __init__(self, message: str, *, code: str | None = None, retry_after: float = 1) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after

    @property
    def headers(self) -> Mapping[str, str]:
        return _retry_headers(self.retry_after)


class InternalError(ApiError):
    """An error of the server. The request id identifies the log line with its cause."""

    status = 500
    type = "server_error"
    default_code = "internal_error"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The server failed on this request. Quote the request id {request_id} when asking why.")


class Unavailable(ApiError):
    """A part that this request needs is temporarily unavailable."""

    status = 503
    type = "server_error"
    default_code = "unavailable"

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after: float = 1
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.retry_after = retry_after

    @property
    def headers(self) -> Mapping[str, str]:
        return _retry_headers(self.retry_after)


class ShuttingDown(Unavailable):
    """This process is stopping."""

    default_code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("This server is shutting down. Send the request again.")


_WAITS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_LONGEST_WAIT = 60.0


def rounded_wait(seconds: float) -> float:
    """Return a wait that depends on all tenants' load, rounded up to one of a few steps, so that no tenant can read the
    load of others from it."""
    return next((wait for wait in _WAITS if seconds <= wait), _LONGEST_WAIT)


def _retry_headers(seconds: float) -> dict[str, str]:
    """Return HTTP's header in whole seconds, and the one in milliseconds that OpenAI's clients prefer."""
    return {"retry-after": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, round(1000 * seconds)))}


_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """The parts of an error that a response contains. `param` is a dotted path; `headers` are the response's."""

    status: int
    message: str
    type: str
    param: str | None
    code: str | None
    headers: Mapping[str, str] = field(default_factory=dict)


def error_details(error: ApiError | StoreError) -> ErrorDetails:
    """Return the details of an error of the gateway or the store."""
    headers: Mapping[str, str]
    if isinstance(error, ApiError):
        param, headers = error.param, error.headers
    else:
        param = None if error.param is None else _INDEX.sub(r".\1", error.param)
        headers = {"retry-after": str(error.retry_after)} if isinstance(error, store_errors.Unavailable) else {}
    return ErrorDetails(
        status=error.status,
        message=error.message,
        type=error.type,
        param=param,
        code=error.code,
        headers=headers,
    )


_TYPES_BY_STATUS = {403: "permission_error", 429: "rate_limit_error"}


def error_type(status: int) -> str:
    """Return OpenAI's `type` for a status whose error has none of its own."""
    return _TYPES_BY_STATUS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def envelope(message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return `{"error": {...}}` with all four fields; those without a value are null."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
