"""Credentials to principals: API keys through a short-lived cache, operators' tokens by OIDC.

A revoked key is accepted for no longer than its cache entry is valid; while the database is unavailable, keys that are
not cached are not accepted. Entries are stored under a digest of the whole key.

A key that is not cached is looked up, in one of three ways. Keys that were valid before wait for nothing, however their
entry expired. Keys with a right checksum wait for a few slots. All others may be invented: they have slots of
their own, and networks of clients share the places in front of these; one with many failures is rejected for a while.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from loragate.adapter_store.auth.credentials import MAX_KEY_LENGTH, Plausibility
from loragate.adapter_store.auth.principal import AdminPrincipal, Principal, Scope, TenantPrincipal
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import elapsed
from loragate.gateway.auth.failures import MALFORMED, THROTTLED, TOKEN, UNKNOWN, FailureThrottle
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.connections.peers import network_of
from loragate.gateway.errors import Forbidden, TooManyRequests
from loragate.gateway.resilience.fair_places import FairPlaces, NoPlace
from loragate.gateway.resilience.ttl_cache import CachedRead, TTLCache

_MAX_KEYS = 10_000
_MAX_DIGESTS = 50_000
_LOOKUP_SECONDS = 5.0
_MAX_NEW_KEY_LOOKUPS = 4  # at once; a third of the database's connections
_MAX_DOUBTFUL_LOOKUPS = 2
_MAX_DOUBTFUL_CALLERS = 4096  # of all networks; callers with one key share its look-up


class Operators(Protocol):
    """Authenticates operators' tokens."""

    async def principal(self, token: str) -> AdminPrincipal | None: ...


class Authenticator:
    """One per process. It subscribes to the store's change notices."""

    def __init__(
        self,
        store: Store,
        lifetime: float,
        use: KeyUse,
        operators: Operators | None = None,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._store = store
        self._operators = operators
        self._use = use
        self._on_failure = on_failure
        self._cache: TTLCache[bytes, Principal] = TTLCache(lifetime, _MAX_KEYS)
        self._valid_before = _Digests(_MAX_DIGESTS)
        self._invalid_before = _Digests(_MAX_DIGESTS)
        self._new_key_lookups = asyncio.Semaphore(_MAX_NEW_KEY_LOOKUPS)
        self._doubtful_lookups = asyncio.Semaphore(_MAX_DOUBTFUL_LOOKUPS)
        self._doubtful_callers = FairPlaces(_MAX_DOUBTFUL_CALLERS)
        self._throttle = FailureThrottle()
        store.notices.subscribe(self._cache.discard)

    async def principal(self, key: str, address: str = "") -> Principal | None:
        """Return the principal of an API key or token; None for one that is unknown, revoked or expired.

        `address` is the client's, unless it came by a Unix socket.
        Raise Unavailable, Forbidden for the token of a user who is not an operator, and TooManyRequests if the
        client's address sent too many invalid keys.
        """
        if self._operators is not None and could_be_token(key):
            operator = await self._operators.principal(key)
            if operator is None:
                self._on_failure(TOKEN)
            return operator
        if len(key) > MAX_KEY_LENGTH:
            self._on_failure(MALFORMED)
            return None
        digest = hashlib.sha256(key.encode()).digest()
        principal = self._cache.peek(digest)
        if principal is None:
            principal = await self._read(digest, key, network_of(address))
        if principal is not None:
            self._use.record(principal)
        return principal

    async def _read(self, digest: bytes, key: str, network: str) -> Principal | None:
        if digest in self._valid_before:
            return await self._cache.get(digest, lambda: self._look_up(digest, key, nullcontext()))
        plausibility = self._store.check_key(key)
        if plausibility is Plausibility.NONE:
            self._on_failure(MALFORMED)
            return None
        if plausibility is Plausibility.CHECKED and digest not in self._invalid_before:
            return await self._cache.get(digest, lambda: self._look_up(digest, key, self._new_key_lookups))
        try:
            with self._doubtful_callers.hold(network):
                return await self._cache.get(digest, lambda: self._look_up_doubtful(digest, key, network))
        except NoPlace:
            raise self._throttled(1.0) from None

    async def _look_up_doubtful(self, digest: bytes, key: str, network: str) -> CachedRead[Principal] | None:
        wait = self._throttle.take(network)
        if wait and digest in self._invalid_before:
            self._on_failure(UNKNOWN)
            return None  # as at its last look-up
        if wait:
            raise self._throttled(wait)
        try:
            found = await self._look_up(digest, key, self._doubtful_lookups)
        except Unavailable:
            self._throttle.give_back(network)
            raise
        if found is not None:
            self._throttle.give_back(network)
        return found

    async def _look_up(
        self, digest: bytes, key: str, slot: AbstractAsyncContextManager[None]
    ) -> CachedRead[Principal] | None:
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS), slot:
                read_at = elapsed()
                found = await self._store.authenticate(key)
        except TimeoutError:
            raise Unavailable("The database does not respond; try again.") from None
        if found is None:
            self._on_failure(UNKNOWN)
            self._valid_before.discard(digest)
            self._invalid_before.add(digest)
            return None
        self._valid_before.add(digest)
        self._invalid_before.discard(digest)
        owner = found.principal.tenant_id or ""  # as notices name the operator
        return CachedRead(found.principal, owner, read_at, found.seconds_left)

    def _throttled(self, seconds: float) -> TooManyRequests:
        self._on_failure(THROTTLED)
        message = "Too many requests with invalid keys come from your address; try again later."
        return TooManyRequests(message, code="too_many_invalid_keys", retry_after=seconds)


class _Digests:
    """The digests that were added last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > self._most:
            self._digests.popitem(last=False)

    def discard(self, digest: bytes) -> None:
        self._digests.pop(digest, None)


def could_be_token(credential: str) -> bool:
    """Return whether it looks like a JSON Web Token (three parts of base64url); no API key does."""
    return credential.startswith("eyJ") and credential.count(".") == 2


def require_scope(principal: TenantPrincipal, *scopes: Scope) -> None:
    """Raise Forbidden unless the principal has one of the scopes."""
    if not any(principal.allows(scope) for scope in scopes):
        required = " or ".join(f"'{scope}'" for scope in scopes)
        raise Forbidden(f"This key lacks the scope {required}.")
