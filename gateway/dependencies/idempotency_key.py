"""The `Idempotency-Key` of a request, as a dependency of its route."""

from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import Request

from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.idempotency import HEADER, KEY_SCHEMA, Once, once_of

_Key = Annotated[str | None, Header(alias=HEADER, json_schema_extra=KEY_SCHEMA)]


async def _once(request: Request, use: Use, key: _Key = None) -> Once:
    return once_of(key, use.store, f"{request.method} {request.scope['path']}")


OnlyOnce = Annotated[Once, Depends(_once)]
