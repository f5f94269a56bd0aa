"""`Idempotency-Key`: a POST that creates something does it once, however often it is sent.

    async with once.attempt("POST /v1/things", caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.reply is not None:
            return attempt.reply
        async with use.store.tenant(…, write=True) as scope:
            thing = await scope.things.create(…)
            return await attempt.keep(scope.replies, thing_object(thing))

The answer is kept in the work's own transaction. Work that fails gives its claim back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.responses import Response

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.idempotency import Claim, Replies, Reply
from loragate.adapter_store.store import Store
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.envelope import json_response

REPLAYED = "idempotent-replayed"
_HEADER = "Idempotency-Key"
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Attempt:
    """`reply` is what was answered the first time; None: do the work."""

    reply: Response | None
    _claim: Claim | None

    async def keep(self, replies: Replies, document: object, status: int = 201) -> Response:
        """The answer that something was created, or done, also for whoever sends the request again."""
        response = json_response(document, status)
        if self._claim is not None:
            await replies.keep(self._claim, Reply(response.status_code, bytes(response.body)))
        return response


@dataclass(frozen=True, slots=True)
class Once:
    """One request's `Idempotency-Key`, or none."""

    key: str | None
    store: Store
    route: str

    @asynccontextmanager
    async def attempt(self, within: str | None, *content: bytes) -> AsyncIterator[Attempt]:
        """`content` is all that makes this request another one; `within` the caller's tenant, None for the operator.

        Raises Conflict for a key that stands for another request, or whose request still runs.
        """
        if self.key is None:
            yield Attempt(None, None)
            return
        async with self.store.admin(write=True, within=within) as admin:
            claim = await admin.replies.claim(self.key, _joined(self.route.encode(), *content))
        if isinstance(claim, Reply):
            yield Attempt(_replayed(claim), None)
            return
        try:
            yield Attempt(None, claim)
        except BaseException:
            await asyncio.shield(self._release(within, claim))
            raise

    async def _release(self, within: str | None, claim: Claim) -> None:
        with suppress(StoreError):  # then it runs out by itself
            async with self.store.admin(write=True, within=within) as admin:
                await admin.replies.release(claim)


def once_of(key: str | None, store: Store, route: str) -> Once:
    """Raises InvalidRequest for what is no key."""
    if key is not None and not (1 <= len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"'{_HEADER}' must be 1 to {_LONGEST} printable ASCII characters.", param=_HEADER)
    return Once(key, store, route)


def _joined(*parts: bytes) -> bytes:
    """Unlike for unlike parts: each is led by its length."""
    return b"".join(len(part).to_bytes(8) + part for part in parts)


def _replayed(reply: Reply) -> Response:
    return Response(reply.body, reply.status, {REPLAYED: "true"}, media_type="application/json")
