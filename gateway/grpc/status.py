"""Errors as gRPC tells them: a status, and beside it google.rpc's details for programs.

400, 415 INVALID_ARGUMENT · 401 UNAUTHENTICATED · 403 PERMISSION_DENIED · 404 NOT_FOUND · 408 DEADLINE_EXCEEDED ·
409 ABORTED · 413, 429, 507 RESOURCE_EXHAUSTED · 500 INTERNAL · 503 UNAVAILABLE

https://google.aip.dev/193 says what the details mean.
"""

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from loragate.gateway.errors import Refused

_DOMAIN = "loragate"
_DETAILS_KEY = "grpc-status-details-bin"
_MOST_CHARACTERS = 1024  # of a message or a field's name: clients refuse more than 8 KiB of metadata

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


def code_of(told: Refused) -> grpc.StatusCode:
    """The status that stands for HTTP's."""
    return _CODES.get(told.status, grpc.StatusCode.INTERNAL)


def message_of(told: Refused) -> str:
    """In words, cut to what metadata can carry."""
    return told.message[:_MOST_CHARACTERS]


def trailers_of(told: Refused, request_id: str) -> tuple[tuple[str, str | bytes], ...]:
    """The trailing metadata: REST's headers of this error, and its details."""
    headers = {"x-request-id": request_id, **told.headers}
    return (*headers.items(), (_DETAILS_KEY, _status(told, request_id).SerializeToString()))


def _status(told: Refused, request_id: str) -> Status:
    status = Status(code=code_of(told).value[0], message=message_of(told))
    param = (told.param or "")[:_MOST_CHARACTERS]
    code = told.code or ""
    metadata = {"code": code, "type": told.type} | ({"param": param} if param else {})
    status.details.add().Pack(ErrorInfo(reason=code.upper(), domain=_DOMAIN, metadata=metadata))
    status.details.add().Pack(RequestInfo(request_id=request_id))
    if told.status == 400 and param:
        violation = BadRequest.FieldViolation(field=param, description=message_of(told))
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    if (delay := _retry_delay(told)) is not None:
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


def _retry_delay(told: Refused) -> Duration | None:
    """None where trying again is useless, or nobody knows when it makes sense."""
    headers = told.headers
    if headers.get("x-should-retry") == "false" or "retry-after" not in headers:
        return None
    delay = Duration()
    delay.FromMilliseconds(int(headers.get("retry-after-ms", 1000 * int(headers["retry-after"]))))
    return delay
