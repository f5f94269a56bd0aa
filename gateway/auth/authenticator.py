"""Credentials to principals: keys through a short-lived cache of immutable snapshots, operators' tokens by OIDC.

There is one cache, in this process. What it holds counts for at most `lifetime` seconds from the moment before it was
read from the database, so that a revoked key works no longer than that even where a change notice was lost; when the
database is away nobody new gets in. Only found keys are cached, under a digest of the whole key.

Keys that were not seen lately wait for one of few places to be read, so that a flood of invented ones takes neither the
database's connections nor the place of keys whose snapshot has merely run out.
"""

import asyncio
import hashlib
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from loragate.adapter_store.credentials import MAX_KEY_LENGTH
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.principal import AdminPrincipal, Principal, Snapshot
from loragate.adapter_store.store import Store
from loragate.gateway.auth.clock import elapsed
from loragate.gateway.auth.key_use import KeyUse

_MOST_KEYS = 10_000
_LOOKUP_SECONDS = 5.0
_NEWCOMERS = 4  # read at once; a third of the database's connections


class Operators(Protocol):
    """Who vouches for operators' tokens."""

    async def principal(self, token: str) -> AdminPrincipal | None: ...


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal
    good_until: float  # by `elapsed`


class Authenticator:
    """One per process. It hears the store's change notices."""

    def __init__(self, store: Store, lifetime: float, use: KeyUse, operators: Operators | None = None) -> None:
        self._store = store
        self._operators = operators
        self._lifetime = lifetime
        self._use = use
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._newcomers = asyncio.Semaphore(_NEWCOMERS)
        store.notices.subscribe(self.forget)

    async def principal(self, key: str) -> Principal | None:
        """Who holds `key`, or a token; None for one that is unknown, revoked or expired.

        Raises Unavailable, and Forbidden for the token of somebody who is no operator.
        """
        if self._operators is not None and could_be_token(key):
            return await self._operators.principal(key)
        if len(key) > MAX_KEY_LENGTH:
            return None
        digest = hashlib.sha256(key.encode()).digest()
        known = self._known.get(digest)
        if known is None or elapsed() >= known.good_until:
            principal = await self._looked_up(digest, key)
        else:
            principal = known.principal
        if principal is not None:
            self._use.note(principal)
        return principal

    def forget(self, tenant_id: str | None) -> None:
        """The tenant or its keys changed (None: anybody's may have): what was read before no longer counts."""
        self._lookups.clear()
        if tenant_id is None:
            self._known.clear()
            return
        for digest in [digest for digest, known in self._known.items() if known.principal.tenant_id == tenant_id]:
            del self._known[digest]

    async def _looked_up(self, digest: bytes, key: str) -> Principal | None:
        """Callers with the same key share one look-up."""
        lookup = self._lookups.get(digest)
        if lookup is None:
            place = nullcontext() if digest in self._known else self._newcomers
            lookup = asyncio.create_task(self._look_up(digest, key, place))
            self._lookups[digest] = lookup
        return await asyncio.shield(lookup)

    async def _look_up(self, digest: bytes, key: str, place: AbstractAsyncContextManager[None]) -> Principal | None:
        this = asyncio.current_task()
        try:
            snapshot, started = await self._read(key, place)
        finally:
            current = self._lookups.get(digest) is this
            if current:
                del self._lookups[digest]
        if current:  # no notice came meanwhile
            self._remember(digest, snapshot, started)
        return None if snapshot is None else snapshot.principal

    async def _read(self, key: str, place: AbstractAsyncContextManager[None]) -> tuple[Snapshot | None, float]:
        """What the database says, and a moment before it said so."""
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS), place:
                started = elapsed()
                return await self._store.authenticate(key), started
        except TimeoutError:
            raise Unavailable("The database does not answer; try again.") from None

    def _remember(self, digest: bytes, snapshot: Snapshot | None, read_at: float) -> None:
        self._known.pop(digest, None)
        if snapshot is not None:
            good_for = min(self._lifetime, snapshot.seconds_left)
            self._known[digest] = _Known(snapshot.principal, read_at + good_for)
            if len(self._known) > _MOST_KEYS:
                self._known.popitem(last=False)


def could_be_token(credential: str) -> bool:
    """Three parts of base64url JSON; no key looks like this."""
    return credential.startswith("eyJ") and credential.count(".") == 2
