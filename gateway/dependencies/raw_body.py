"""The body of a request as bytes, as a dependency of its route."""

from typing import Any

import pydantic_core
from starlette.requests import Request

from loragate.gateway.dependencies.json_body import check_type
from loragate.gateway.dependencies.services import services_of
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.bodies import announced_size, check_size, chunks
from loragate.gateway.http.context import context_of

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


class RawBody:
    """A dependency that reads the body, of this media type, after the caller was authenticated."""

    def __init__(self, media: str = JSON) -> None:
        self.media = media

    async def __call__(self, request: Request) -> bytes:
        services = services_of(request)
        config = services.config
        check_type(request, self.media)
        announced = announced_size(request)
        check_size(announced, config.max_json_bytes)
        with services.body_budget.reserve(context_of(request.scope).tenant_id, announced) as reserved:
            body = bytearray()
            async for part in chunks(request, announced, config.max_json_bytes, config.body_pace):
                body += part
                reserved.extend_to(len(body))
            return bytes(body)


def json_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a body. Raise InvalidRequest."""
    try:
        document = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    return document
