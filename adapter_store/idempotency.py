"""Responses to requests with an `Idempotency-Key`, stored for a day and replayed.

A key is *claimed* in a transaction of its own before the work, and the response is stored in the work's transaction:
either both exist afterwards or neither. Of two simultaneous requests one gets the claim. A claim whose process dies
expires. The owner is part of the hash by which rows are found, so tenants never share keys.

Responses may hold secrets (a new API key). They are encrypted under a key derived from the secret key and from the
`Idempotency-Key` itself, which is not stored: the database alone does not reveal them. Responses of the time before a
rotation are found and read with the previous secrets.
"""

import hmac
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import ColumnElement, delete, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.tables.tenants import IdempotencyReplyRow

RETENTION = timedelta(hours=24)
_CLAIM = timedelta(minutes=2)  # longer than the work takes
_NONCE_BYTES = 12
_PARAM = "Idempotency-Key"


@dataclass(frozen=True)
class StoredResponse:
    """The response to the first request."""

    status: int
    body: bytes


@dataclass(frozen=True)
class IdempotencyClaim:
    """The right to do the work once."""

    key: str
    token: str
    secret: bytes = field(repr=False)  # which the row was made with


class IdempotencyRepository:
    """The stored responses of one scope: a tenant's, or the operator's."""

    def __init__(self, session: AsyncSession, secret_keys: SecretKeys) -> None:
        self._session = session
        self._secrets = secret_keys.derive("idempotent replies")
        self._owner = tenant_of(session) or ""

    async def claim(self, key: str, request: bytes) -> IdempotencyClaim | StoredResponse:
        """Return a claim, or the stored response if the same request was answered before.

        Raise Conflict if the key was used for another request, or if that request is still running.
        """
        now = await current_time(self._session)
        await self._session.execute(
            delete(IdempotencyReplyRow).where(IdempotencyReplyRow.created_at <= now - RETENTION)
        )
        places = {self._place(secret, key): secret for secret in self._secrets}
        here = select(IdempotencyReplyRow).where(IdempotencyReplyRow.key_hash.in_(places))
        row = (await self._session.scalars(here)).one_or_none()
        if row is None:
            return await self._add(key, request, now)
        secret = places[row.key_hash]
        if not hmac.compare_digest(row.fingerprint, self._hash(secret, "request", request)):
            raise Conflict("This key was used for another request.", code="idempotency_key_reused", param=_PARAM)
        if row.sealed is not None and row.status is not None:
            return StoredResponse(row.status, self._opened(secret, key, row.sealed))
        if row.claimed_until > now:
            raise Conflict("A request with this key is still running.", code="idempotency_key_in_use", param=_PARAM)
        return await self._take_over(secret, key, now)

    async def complete(self, claim: IdempotencyClaim, response: StoredResponse) -> None:
        """Store the response in the work's transaction. Raise Conflict if the claim expired and was taken over."""
        sealed = self._sealed(claim, response.body)
        stored = update(IdempotencyReplyRow).where(*self._of(claim)).values(status=response.status, sealed=sealed)
        if (await self._session.execute(stored.returning(IdempotencyReplyRow.token))).one_or_none() is None:
            raise Conflict("A request with this key is still running.", code="idempotency_key_in_use", param=_PARAM)

    async def release(self, claim: IdempotencyClaim) -> None:
        """Drop the claim after the work failed, so that the next request can try again."""
        await self._session.execute(
            delete(IdempotencyReplyRow).where(*self._of(claim), IdempotencyReplyRow.status.is_(None))
        )

    async def _add(self, key: str, request: bytes, now: datetime) -> IdempotencyClaim:
        claim = IdempotencyClaim(key, random_base62(20), self._secrets[0])
        row = insert(IdempotencyReplyRow).values(
            tenant_id=self._owner,
            key_hash=self._place(claim.secret, key),
            fingerprint=self._hash(claim.secret, "request", request),
            token=claim.token,
            claimed_until=now + _CLAIM,
            created_at=now,
        )
        await self._session.execute(row)
        return claim

    async def _take_over(self, secret: bytes, key: str, now: datetime) -> IdempotencyClaim:
        claim = IdempotencyClaim(key, random_base62(20), secret)
        here = IdempotencyReplyRow.key_hash == self._place(secret, key)
        await self._session.execute(
            update(IdempotencyReplyRow).where(here).values(token=claim.token, claimed_until=now + _CLAIM)
        )
        return claim

    def _of(self, claim: IdempotencyClaim) -> tuple[ColumnElement[bool], ...]:
        row = IdempotencyReplyRow
        return row.key_hash == self._place(claim.secret, claim.key), row.token == claim.token

    def _place(self, secret: bytes, key: str) -> bytes:
        """Return what a key's row is found by."""
        return self._hash(secret, "key", key.encode())

    def _hash(self, secret: bytes, what: str, content: bytes) -> bytes:
        return hmac.digest(secret, b"\0".join((what.encode(), self._owner.encode(), content)), "sha256")

    def _sealed(self, claim: IdempotencyClaim, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._hash(claim.secret, "seal", claim.key.encode())).encrypt(nonce, body, None)

    def _opened(self, secret: bytes, key: str, sealed: bytes) -> bytes:
        cipher = AESGCM(self._hash(secret, "seal", key.encode()))
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)


class ExpiredResponses:
    """The responses that no request can repeat any more, for the operator."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def purge(self, limit: int) -> int:
        """Remove up to `limit` expired responses of all tenants; return their number."""
        row = IdempotencyReplyRow
        now = await current_time(self._session)
        key = (row.tenant_id, row.key_hash)
        old = select(*key).where(row.created_at <= now - RETENTION).limit(limit)
        removed = await self._session.execute(delete(row).where(tuple_(*key).in_(old)).returning(row.tenant_id))
        return len(removed.all())
