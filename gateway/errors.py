"""Every error a caller can see. Each class owns its HTTP status and OpenAI's `type`.

ApiError
├── InvalidRequest          400
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
from typing import ClassVar

from loragate.adapter_store import errors as store_errors
from loragate.adapter_store.errors import StoreError

OVERLOADED = "overloaded"
"""The code of what is refused because there is too much to do."""


class ApiError(Exception):
    """A refusal in words. `param` names the field at fault as a dotted path, `code` is for programs."""

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
    """The request itself is wrong; sending it again will not help."""

    status = 400


class Unauthenticated(ApiError):
    """No key, or one that is unknown, revoked or expired: the caller is not told which."""

    status = 401
    default_code = "invalid_api_key"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"www-authenticate": 'Bearer realm="loragate"'}


class Forbidden(ApiError):
    """A good key that may not do this."""

    status = 403
    type = "permission_error"
    default_code = "insufficient_scope"


class NotFound(ApiError):
    """Missing, or somebody else's: the same answer."""

    status = 404
    default_code = "not_found"


class RequestTimeout(ApiError):
    """The client stopped sending its body."""

    status = 408
    default_code = "request_timeout"


class PayloadTooLarge(ApiError):
    """The body is over the limit of its route."""

    status = 413
    default_code = "request_too_large"


class UnsupportedMediaType(ApiError):
    """The body is of a type or encoding that this route does not read."""

    status = 415
    default_code = "unsupported_media_type"


class TooManyRequests(ApiError):
    """The caller itself has sent more than is done yet."""

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
    """Our fault. The request id leads to the log line that says why."""

    status = 500
    type = "server_error"
    default_code = "internal_error"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The server failed on this request. Quote the request id {request_id} when asking why.")


class Unavailable(ApiError):
    """A part that this request needs is away; it comes back by itself."""

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


def _retry_headers(seconds: float) -> dict[str, str]:
    """HTTP's own in whole seconds, and the finer one that OpenAI's clients read first."""
    return {"retry-after": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, round(1000 * seconds)))}


_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Refused:
    """`param` is a dotted path; `headers` belong on the answer."""

    status: int
    message: str
    type: str
    param: str | None
    code: str | None
    headers: Mapping[str, str] = field(default_factory=dict)


def refused(error: ApiError | StoreError) -> Refused:
    """The same shape for the gateway's own errors and the store's."""
    if isinstance(error, ApiError):
        return Refused(error.status, error.message, error.type, error.param, error.code, error.headers)
    param = None if error.param is None else _INDEX.sub(r".\1", error.param)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, store_errors.Unavailable) else {}
    return Refused(error.status, error.message, error.type, param, error.code, headers)
