"""The JSON body of a request, as a dependency of its route."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import pydantic_core
from pydantic import BaseModel
from starlette.requests import Request

from loragate.gateway.dependencies.services import services_of
from loragate.gateway.errors import InvalidRequest, UnsupportedMediaType
from loragate.gateway.http.bodies import (
    INLINE_BYTES,
    announced_size,
    check_encoding,
    check_size,
    chunks,
    parse_body,
)
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.schemas.validation import validated

M = TypeVar("M", bound=BaseModel)


class JsonBody(Generic[M]):
    """A dependency that parses the body as JSON into `model`.

    FastAPI would read the body before it authenticates the caller; a dependency that follows the caller's does not.
    With `optional`, an empty body stands for an empty object.
    """

    def __init__(self, model: type[M], *, optional: bool = False) -> None:
        self.model = model
        self.optional = optional

    async def __call__(self, request: Request) -> M:
        services, tenant_id = services_of(request), context_of(request.scope).tenant_id
        async with received(request, "application/json") as body:
            parsing = parse_body(services.body_threads, tenant_id, self._parse, body)
            if len(body) <= INLINE_BYTES:
                return await parsing
            return await supervise(parsing, request.receive, services.lifecycle)

    def _parse(self, body: bytearray) -> M:
        if self.optional and not body:
            body = bytearray(b"{}")
        return validated(self.model, json_object(body))


def check_type(request: Request, expected: str) -> None:
    """Raise UnsupportedMediaType unless the body is of this type, and not compressed."""
    given = request.headers.get("content-type", expected).partition(";")[0].strip().lower()
    if given != expected:
        raise UnsupportedMediaType(f"Send the body as {expected}.", param="content-type")
    check_encoding(request)


def json_object(raw: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object of a body. Raise InvalidRequest."""
    try:
        # Nesting is bounded by the parser (200 levels), and so is the length of numbers.
        document = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    return document


@asynccontextmanager
async def received(request: Request, media: str) -> AsyncIterator[bytearray]:
    """Yield the body, of this media type. Its bytes are held of the process's budget until the end of the block."""
    services = services_of(request)
    config = services.config
    check_type(request, media)
    announced = announced_size(request)
    check_size(announced, config.max_json_bytes)
    with services.body_budget.reserve(context_of(request.scope).tenant_id, announced) as reserved:
        body = bytearray()  # not a list: a client may send its bytes one by one
        async for part in chunks(request, announced, config.max_json_bytes, config.body_pace):
            body += part
            reserved.extend_to(len(body))
        yield body
