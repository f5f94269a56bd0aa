"""What was answered to requests with an `Idempotency-Key`, for a day.

A key is *claimed* in a transaction of its own before the work, and the answer is kept in the work's own transaction:
either both are there afterwards or neither. Of two requests at once one claims; a claim that its process did not live
to use runs out. Whose key it is goes into the hash that rows are found by, too: nobody meets another tenant's.

Answers may hold secrets (a new API key). They are sealed under a key derived from the secret key and from the
`Idempotency-Key` itself, which is not stored: whoever has the database has neither.
"""

import hmac
import os
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.auth.secret_key import derive_key
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.tables.base import IdempotencyReplyRow

KEPT = timedelta(hours=24)
_CLAIM = timedelta(minutes=2)  # longer than the work takes
_NONCE_BYTES = 12
_PARAM = "Idempotency-Key"


@dataclass(frozen=True)
class StoredResponse:
    """An answer as it was given the first time."""

    status: int
    body: bytes


@dataclass(frozen=True)
class IdempotencyClaim:
    """The right to do the work once."""

    key: str
    token: str


class IdempotencyRepository:
    """Part of both scopes; sees its scope's owner's only."""

    def __init__(self, session: AsyncSession, secret_key: bytes) -> None:
        self._session = session
        self._secret = derive_key(secret_key, "idempotent replies")
        self._owner = tenant_of(session) or ""

    async def claim(self, key: str, request: bytes) -> IdempotencyClaim | StoredResponse:
        """A claim, or what was answered to the same key and request before.

        Raises Conflict when the key stands for another request, or when that request still runs.
        """
        now = (await self._session.execute(select(database_now()))).scalar_one()
        await self._session.execute(delete(IdempotencyReplyRow).where(IdempotencyReplyRow.created_at <= now - KEPT))
        here = select(IdempotencyReplyRow).where(IdempotencyReplyRow.key_hash == self._hash("key", key.encode()))
        row = (await self._session.scalars(here)).one_or_none()
        fingerprint = self._hash("request", request)
        if row is None:
            return await self._add(key, fingerprint, now)
        if not hmac.compare_digest(row.fingerprint, fingerprint):
            raise Conflict("This key was used for another request.", code="idempotency_key_reused", param=_PARAM)
        if row.sealed is not None and row.status is not None:
            return StoredResponse(row.status, self._opened(key, row.sealed))
        if row.claimed_until > now:
            raise Conflict("A request with this key still runs.", code="idempotency_key_in_use", param=_PARAM)
        return await self._take_over(key, now)

    async def complete(self, claim: IdempotencyClaim, reply: StoredResponse) -> None:
        """To be called in the work's transaction. Raises Conflict when the claim ran out and was taken over."""
        sealed = self._sealed(claim.key, reply.body)
        kept = update(IdempotencyReplyRow).where(*self._of(claim)).values(status=reply.status, sealed=sealed)
        if (await self._session.execute(kept.returning(IdempotencyReplyRow.token))).one_or_none() is None:
            raise Conflict("A request with this key still runs.", code="idempotency_key_in_use", param=_PARAM)

    async def release(self, claim: IdempotencyClaim) -> None:
        """The work failed; the next request may try again."""
        await self._session.execute(
            delete(IdempotencyReplyRow).where(*self._of(claim), IdempotencyReplyRow.status.is_(None))
        )

    async def _add(self, key: str, fingerprint: bytes, now: datetime) -> IdempotencyClaim:
        claim = IdempotencyClaim(key, random_base62(20))
        row = insert(IdempotencyReplyRow).values(
            tenant_id=self._owner,
            key_hash=self._hash("key", key.encode()),
            fingerprint=fingerprint,
            token=claim.token,
            claimed_until=now + _CLAIM,
            created_at=now,
        )
        await self._session.execute(row)
        return claim

    async def _take_over(self, key: str, now: datetime) -> IdempotencyClaim:
        claim = IdempotencyClaim(key, random_base62(20))
        here = IdempotencyReplyRow.key_hash == self._hash("key", key.encode())
        await self._session.execute(
            update(IdempotencyReplyRow).where(here).values(token=claim.token, claimed_until=now + _CLAIM)
        )
        return claim

    def _of(self, claim: IdempotencyClaim) -> tuple[ColumnElement[bool], ...]:
        return IdempotencyReplyRow.key_hash == self._hash(
            "key", claim.key.encode()
        ), IdempotencyReplyRow.token == claim.token

    def _hash(self, what: str, content: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join((what.encode(), self._owner.encode(), content)), "sha256")

    def _sealed(self, key: str, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._hash("seal", key.encode())).encrypt(nonce, body, None)

    def _opened(self, key: str, sealed: bytes) -> bytes:
        return AESGCM(self._hash("seal", key.encode())).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
