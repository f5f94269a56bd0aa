"""Errors in gRPC's format: a status, and google.rpc's details for programs.

400, 415 INVALID_ARGUMENT · 401 UNAUTHENTICATED · 403 PERMISSION_DENIED · 404 NOT_FOUND · 408 DEADLINE_EXCEEDED ·
409 ABORTED · 413, 429, 507 RESOURCE_EXHAUSTED · 500 INTERNAL · 503 UNAVAILABLE

https://google.aip.dev/193 defines the details.
"""

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from loragate.gateway.errors import ErrorDetails

_DOMAIN = "loragate"
_DETAILS_KEY = "grpc-status-details-bin"
_MAX_CHARACTERS = 1024  # of a message or a field's name: clients reject more than 8 KiB of metadata

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def status_code(error: ErrorDetails) -> grpc.StatusCode:
    """Return the gRPC status that corresponds to the HTTP status."""
    return _CODES.get(error.status, grpc.StatusCode.INTERNAL)


def status_message(error: ErrorDetails) -> str:
    """Return the error's message, truncated to a length that metadata can carry."""
    return error.message[:_MAX_CHARACTERS]


def trailing_metadata(error: ErrorDetails, request_id: str) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailing metadata: the error's headers in REST, and its details."""
    headers = {"x-request-id": request_id, **error.headers}
    return (*headers.items(), (_DETAILS_KEY, _status(error, request_id).SerializeToString()))


def _status(error: ErrorDetails, request_id: str) -> Status:
    status = Status(code=status_code(error).value[0], message=status_message(error))
    param = (error.param or "")[:_MAX_CHARACTERS]
    code = error.code or ""
    metadata = {"code": code, "type": error.type} | ({"param": param} if param else {})
    status.details.add().Pack(ErrorInfo(reason=code.upper(), domain=_DOMAIN, metadata=metadata))
    status.details.add().Pack(RequestInfo(request_id=request_id))
    if error.status == 400 and param:
        violation = BadRequest.FieldViolation(field=param, description=status_message(error))
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    if (delay := _retry_delay(error)) is not None:
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


def _retry_delay(error: ErrorDetails) -> Duration | None:
    """Return None if a retry is useless, or if it is unknown when it can succeed."""
    headers = error.headers
    if headers.get("x-should-retry") == "false" or "retry-after" not in headers:
        return None
    delay = Duration()
    delay.FromMilliseconds(int(headers.get("retry-after-ms", 1000 * int(headers["retry-after"]))))
    return delay
