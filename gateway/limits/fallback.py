"""What one process gives out alone while the common book is away."""

import secrets
from typing import Any

from loragate.gateway.limits.backend import WINDOW, Reply
from loragate.gateway.limits.memory_backend import LocalBook
from loragate.gateway.limits.observed_state import Held, Memory
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.usage_totals import Spent

_LIFE = 24 * 60 * WINDOW  # its leases end with this process, which settles them


class LocalShare:
    """max(1, limit ÷ sharers) of every limit, beginning where the common book was last seen."""

    def __init__(self, sharers: int, spent: Spent) -> None:
        assert sharers >= 1
        self._sharers = sharers
        self._spent = spent
        self._book = LocalBook()
        self._leases: set[str] = set()

    async def reserve(
        self, tenant_id: str, memory: Memory, subjects: tuple[Subject, ...], lease_id: str, tokens: int
    ) -> tuple[tuple[Subject, ...], Reply]:
        """The subjects with their shares, and what the local book says."""
        shares = tuple(subject.share(self._sharers) for subject in subjects)
        details = {"id": lease_id, "tokens": tokens, "life": _LIFE, "subjects": [share.asked for share in shares]}
        reply = self._ask("reserve", tenant_id, details)
        if reply.verdict == "lost":
            await self._begin(tenant_id, memory, subjects, reply.now)
            reply = self._ask("reserve", tenant_id, details)
        if reply.verdict == "ok":
            self._leases.add(lease_id)
        return shares, reply

    def extend(self, tenant_id: str, held: Held, tokens: int) -> None:
        """For a lease that was given out here; nothing for others."""
        if held.id in self._leases:
            self._ask("extend", tenant_id, {**held.handed_in, "tokens": tokens, "life": _LIFE})

    def settle(self, tenant_id: str, held: Held, tokens: int) -> None:
        """The same."""
        if held.id in self._leases:
            self._leases.remove(held.id)
            self._ask("settle", tenant_id, {**held.handed_in, "tokens": tokens})

    def forget(self, tenant_id: str) -> None:
        """The common book is back, and will know better the next time that it goes."""
        self._book.forget(tenant_id)

    def _ask(self, what: str, tenant_id: str, details: dict[str, Any]) -> Reply:
        return self._book.answer(tenant_id, "", [{"what": what, **details}]).replies[0]

    async def _begin(self, tenant_id: str, memory: Memory, subjects: tuple[Subject, ...], now: float) -> None:
        running = [held for held in memory.held.values() if not held.alone]
        self._leases.update(held.id for held in running)
        known = [*memory.states(now), *await self._spent.sums(tenant_id, subjects, now)]
        details = {
            "life": _LIFE,
            "fresh": secrets.token_hex(8),
            "subjects": [self._share_of(each) for each in known],
            "leases": [held.handed_in for held in running],
        }
        self._ask("restore", tenant_id, details)

    def _share_of(self, known: dict[str, Any]) -> dict[str, Any]:
        """Buckets are times and need no dividing; other processes' leases are no business of this one."""
        sums: dict[str, Any] = {total: known[total] // self._sharers for total in ("ds", "ms") if total in known}
        seen = {"seen": {**known["seen"], "c": 0}} if "seen" in known else {}
        return {**known, **sums, **seen}
