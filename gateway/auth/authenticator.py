"""Credentials to principals: keys through short-lived snapshots, operators' tokens by OIDC.

A revoked key works no longer than its snapshot counts; when the database is away nobody new gets in. Snapshots are kept
under a digest of the whole key.

Keys that were not seen lately wait for one of few places to be read, so that a flood of invented ones takes neither the
database's connections nor the place of keys whose snapshot has merely run out.
"""

import asyncio
import hashlib
from contextlib import nullcontext
from typing import Protocol

from loragate.adapter_store.auth.credentials import MAX_KEY_LENGTH
from loragate.adapter_store.auth.principal import AdminPrincipal, Principal
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.store import Store
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.resilience.clock import elapsed
from loragate.gateway.resilience.ttl_cache import Snapshot, Snapshots

_MOST_KEYS = 10_000
_LOOKUP_SECONDS = 5.0
_NEWCOMERS = 4  # read at once; a third of the database's connections


class Operators(Protocol):
    """Who vouches for operators' tokens."""

    async def principal(self, token: str) -> AdminPrincipal | None: ...


class Authenticator:
    """One per process. It hears the store's change notices."""

    def __init__(self, store: Store, lifetime: float, use: KeyUse, operators: Operators | None = None) -> None:
        self._store = store
        self._operators = operators
        self._use = use
        self._snapshots: Snapshots[bytes, Principal] = Snapshots(lifetime, _MOST_KEYS)
        self._newcomers = asyncio.Semaphore(_NEWCOMERS)
        store.notices.subscribe(self._snapshots.forget)

    async def principal(self, key: str) -> Principal | None:
        """Who holds `key`, or a token; None for one that is unknown, revoked or expired.

        Raises Unavailable, and Forbidden for the token of somebody who is no operator.
        """
        if self._operators is not None and could_be_token(key):
            return await self._operators.principal(key)
        if len(key) > MAX_KEY_LENGTH:
            return None
        digest = hashlib.sha256(key.encode()).digest()
        principal = await self._snapshots.of(digest, lambda: self._read(digest, key))
        if principal is not None:
            self._use.note(principal)
        return principal

    async def _read(self, digest: bytes, key: str) -> Snapshot[Principal] | None:
        place = nullcontext() if self._snapshots.was_here(digest) else self._newcomers
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS), place:
                read_at = elapsed()
                found = await self._store.authenticate(key)
        except TimeoutError:
            raise Unavailable("The database does not answer; try again.") from None
        if found is None:
            return None
        return Snapshot(found.principal, found.principal.tenant_id, read_at, found.seconds_left)


def could_be_token(credential: str) -> bool:
    """Three parts of base64url JSON; no key looks like this."""
    return credential.startswith("eyJ") and credential.count(".") == 2
