"""The JSON body of a request, as a dependency of its route."""

from typing import Generic, TypeVar

import pydantic_core
from pydantic import BaseModel
from starlette.requests import Request

from loragate.gateway.dependencies.services import services_of
from loragate.gateway.errors import InvalidRequest, UnsupportedMediaType
from loragate.gateway.http.bodies import announced_size, check_encoding, chunks, parse_body
from loragate.gateway.schemas.validation import validated
from loragate.gateway.services import Services

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
        services = services_of(request)
        _check_type(request, "application/json")
        body = await _read(request, services)
        return await parse_body(self._parse, body)

    def _parse(self, body: bytes) -> M:
        if self.optional and not body:
            body = b"{}"
        try:
            # Nesting is bounded by the parser (200 levels), and so is the length of numbers.
            document = pydantic_core.from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from None
        if not isinstance(document, dict):
            raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
        return validated(self.model, document)


async def _read(request: Request, services: Services) -> bytes:
    config = services.config
    parts = [part async for part in chunks(request, announced_size(request), config.max_json_bytes, config.body_pace)]
    return b"".join(parts)


def _check_type(request: Request, expected: str) -> None:
    given = request.headers.get("content-type", expected).partition(";")[0].strip().lower()
    if given != expected:
        raise UnsupportedMediaType(f"Send the body as {expected}.", param="content-type")
    check_encoding(request)
