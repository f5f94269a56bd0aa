"""Errors and other JSON as responses: OpenAI's error envelope, and Anthropic's errors for its Messages API."""

from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Scope

from loragate.gateway.errors import ApiError, ErrorDetails, envelope
from loragate.gateway.http.context import context_of
from loragate.gateway.http.message_errors import REQUEST_ID, has_message_errors, message_error


def error_body(error: ApiError | ErrorDetails) -> dict[str, Any]:
    """Return the envelope of `error`."""
    return envelope(error.message, error.type, error.param, error.code)


def error_response(error: ApiError | ErrorDetails, scope: Scope) -> Response:
    """Return `error` as the response to the request of `scope`, in the form of the API that it calls."""
    if not has_message_errors(scope["path"]):
        return json_response(error_body(error), error.status, dict(error.headers))
    request_id = context_of(scope).request_id
    headers = {**error.headers, REQUEST_ID: request_id}
    return json_response(message_error(error.status, error.message, error.code, request_id), error.status, headers)


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return `content` as a JSON response."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")
