"""Credentials to principals: API keys through a short-lived cache, operators' tokens by OIDC.

A revoked key is accepted for no longer than its cache entry is valid; while the database is unavailable, keys that are
not cached are not accepted. Entries are stored under a digest of the whole key.

Keys that were not seen lately wait for one of a few lookup slots. A flood of invented keys therefore takes neither the
database's connections nor the slots of keys whose entry has merely expired.
"""

import asyncio
import hashlib
from contextlib import nullcontext
from typing import Protocol

from loragate.adapter_store.auth.credentials import MAX_KEY_LENGTH
from loragate.adapter_store.auth.principal import AdminPrincipal, Principal, Scope, TenantPrincipal
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import elapsed
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.errors import Forbidden
from loragate.gateway.resilience.ttl_cache import CachedRead, TTLCache

_MAX_KEYS = 10_000
_LOOKUP_SECONDS = 5.0
_MAX_NEW_KEY_LOOKUPS = 4  # at once; a third of the database's connections


class Operators(Protocol):
    """Authenticates operators' tokens."""

    async def principal(self, token: str) -> AdminPrincipal | None: ...


class Authenticator:
    """One per process. It subscribes to the store's change notices."""

    def __init__(self, store: Store, lifetime: float, use: KeyUse, operators: Operators | None = None) -> None:
        self._store = store
        self._operators = operators
        self._use = use
        self._cache: TTLCache[bytes, Principal] = TTLCache(lifetime, _MAX_KEYS)
        self._new_key_lookups = asyncio.Semaphore(_MAX_NEW_KEY_LOOKUPS)
        store.notices.subscribe(self._cache.discard)

    async def principal(self, key: str) -> Principal | None:
        """Return the principal of an API key or token; None for one that is unknown, revoked or expired.

        Raise Unavailable, and Forbidden for the token of a user who is not an operator.
        """
        if self._operators is not None and could_be_token(key):
            return await self._operators.principal(key)
        if len(key) > MAX_KEY_LENGTH:
            return None
        digest = hashlib.sha256(key.encode()).digest()
        principal = await self._cache.get(digest, lambda: self._read(digest, key))
        if principal is not None:
            self._use.record(principal)
        return principal

    async def _read(self, digest: bytes, key: str) -> CachedRead[Principal] | None:
        slot = nullcontext() if self._cache.has_entry(digest) else self._new_key_lookups
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS), slot:
                read_at = elapsed()
                found = await self._store.authenticate(key)
        except TimeoutError:
            raise Unavailable("The database does not respond; try again.") from None
        if found is None:
            return None
        return CachedRead(found.principal, found.principal.tenant_id, read_at, found.seconds_left)


def could_be_token(credential: str) -> bool:
    """Return whether it looks like a JSON Web Token (three parts of base64url); no API key does."""
    return credential.startswith("eyJ") and credential.count(".") == 2


def require_scope(principal: TenantPrincipal, *scopes: Scope) -> None:
    """Raise Forbidden unless the principal has one of the scopes."""
    if not any(principal.allows(scope) for scope in scopes):
        required = " or ".join(f"'{scope}'" for scope in scopes)
        raise Forbidden(f"This key lacks the scope {required}.")
