"""Keys to principals, through a short-lived cache of immutable snapshots.

A revoked key works for at most the cache's lifetime, and no longer when the database is away: then nobody new gets
in. Only found keys are cached, under a digest of the whole key.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from loragate.adapter_store.principal import AdminPrincipal, Principal
from loragate.adapter_store.store import Store

_MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class _Snapshot:
    principal: Principal
    good_until: float  # monotonic


class Authenticator:
    """One per process."""

    def __init__(self, store: Store, lifetime: float) -> None:
        self._store = store
        self._lifetime = lifetime
        self._snapshots: OrderedDict[bytes, _Snapshot] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def principal(self, key: str) -> Principal | None:
        """Who holds `key`; None for a key that is unknown, revoked or expired."""
        digest = hashlib.sha256(key.encode()).digest()
        snapshot = self._snapshots.get(digest)
        if snapshot is None or time.monotonic() >= snapshot.good_until:
            principal = await self._looked_up(digest, key)
        else:
            principal = snapshot.principal
        return None if principal is None or _expired(principal) else principal

    def forget(self) -> None:
        """Something was revoked here: what is known, or being looked up, no longer counts."""
        self._snapshots.clear()
        self._lookups.clear()

    async def _looked_up(self, digest: bytes, key: str) -> Principal | None:
        """Callers with the same key share one look-up."""
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(digest, key))
            self._lookups[digest] = lookup
        return await asyncio.shield(lookup)

    async def _look_up(self, digest: bytes, key: str) -> Principal | None:
        started = time.monotonic()
        this = asyncio.current_task()
        try:
            principal = await self._store.authenticate(key)
        finally:
            current = self._lookups.get(digest) is this
            if current:
                del self._lookups[digest]
        if current:  # not forgotten meanwhile
            self._remember(digest, principal, started + self._lifetime)
        return principal

    def _remember(self, digest: bytes, principal: Principal | None, good_until: float) -> None:
        self._snapshots.pop(digest, None)
        if principal is not None:
            self._snapshots[digest] = _Snapshot(principal, good_until)
            if len(self._snapshots) > _MOST_KEYS:
                self._snapshots.popitem(last=False)


def _expired(principal: Principal) -> bool:
    if isinstance(principal, AdminPrincipal) or principal.expires_at is None:
        return False
    return datetime.now(UTC) >= principal.expires_at
