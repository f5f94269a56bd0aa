"""`Idempotency-Key`: a POST that creates something does so once, however often it is sent.

    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(…, write=True) as scope:
            thing = await scope.things.create(…)
            return await attempt.keep(scope.idempotency, thing_object(thing))

The result is stored, encoded, in the transaction of the work itself. Work that fails releases its claim.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import JsonValue
from starlette.responses import Response

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.idempotency import IdempotencyClaim, IdempotencyRepository, StoredResponse
from loragate.adapter_store.store import Store
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.envelope import json_response

REPLAYED = "idempotent-replayed"
HEADER = "Idempotency-Key"
_MAX_CHARACTERS = 255
KEY_SCHEMA: dict[str, JsonValue] = {"minLength": 1, "maxLength": _MAX_CHARACTERS, "pattern": "^[ -~]+$"}

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Result(Generic[D]):
    """The document that a POST results in. `status` is HTTP's; `replayed`: the work was done for an earlier request."""

    document: D
    status: int
    replayed: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The response headers that belong to the result."""
        return {REPLAYED: "true"} if self.replayed else {}

    def response(self) -> Response:
        """Return the result as an HTTP response."""
        return json_response(self.document, self.status, self.headers)


@dataclass(frozen=True, slots=True)
class Attempt:
    """`earlier` is the result of an earlier request with the same key; if it is None, do the work."""

    earlier: Result[Any] | None
    _claim: IdempotencyClaim | None

    async def keep(self, replies: IdempotencyRepository, document: D, status: int = 201) -> Result[D]:
        """Return the result that `document` was created (201) or the work was done (200); store it for replays."""
        if self._claim is not None:
            await replies.complete(self._claim, StoredResponse(status, orjson.dumps(document)))
        return Result(document, status)


@dataclass(frozen=True, slots=True)
class Once:
    """One request's `Idempotency-Key`, or none."""

    key: str | None
    store: Store
    route: str

    @asynccontextmanager
    async def attempt(self, within: str | None, *content: bytes) -> AsyncIterator[Attempt]:
        """IdempotencyClaim the key for the work of the block.

        `content` is all that distinguishes this request from others; `within` is the caller's tenant, None for the
        operator. Raise Conflict if the key belongs to a different request, or to one that is still running.
        """
        if self.key is None:
            yield Attempt(None, None)
            return
        async with self.store.admin(write=True, within=within) as admin:
            claim = await admin.idempotency.claim(self.key, _joined(self.route.encode(), *content))
        if isinstance(claim, StoredResponse):
            yield Attempt(Result(orjson.loads(claim.body), claim.status, replayed=True), None)
            return
        try:
            yield Attempt(None, claim)
        except BaseException:
            await asyncio.shield(self._release(within, claim))
            raise

    async def _release(self, within: str | None, claim: IdempotencyClaim) -> None:
        with suppress(StoreError):  # then the claim expires
            async with self.store.admin(write=True, within=within) as admin:
                await admin.idempotency.release(claim)


def once_of(key: str | None, store: Store, route: str) -> Once:
    """Raise InvalidRequest for an invalid key."""
    if key is not None and not (1 <= len(key) <= _MAX_CHARACTERS and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"'{HEADER}' must be 1 to {_MAX_CHARACTERS} printable ASCII characters.", param=HEADER)
    return Once(key, store, route)


def _joined(*parts: bytes) -> bytes:
    """Join the parts, each with its length in front, so that different parts give different results."""
    return b"".join(len(part).to_bytes(8) + part for part in parts)
