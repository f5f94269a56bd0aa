"""What holds callers to their limits."""

import asyncio
import itertools
import secrets
from contextlib import suppress

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.limits.backend import Book, BookAway, Reply
from loragate.gateway.limits.fallback import LocalShare
from loragate.gateway.limits.headers import headers_of
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.observed_state import Held
from loragate.gateway.limits.refusal import never_fits, refusal_of
from loragate.gateway.limits.subject import Subject, subjects_of
from loragate.gateway.limits.tenant_pipeline import Line
from loragate.gateway.limits.usage_totals import Spent
from loragate.gateway.resilience.timeouts import ended

_RENEW_SECONDS = 10.0
_LAST_SECONDS = 2.0  # to settle what is left when the process stops


class Limiter:
    """One per process. Asks the book; while that is away, gives out this process's share of the limits alone."""

    def __init__(self, book: Book, share: LocalShare, spent: Spent, metrics: LimitMetrics) -> None:
        self._book = book
        self._metrics = metrics
        self._share = share
        self._spent = spent
        self._lines: dict[str, Line] = {}
        self._renewing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to renew what is given out."""
        self._renewing = asyncio.create_task(self._renew_for_ever(), name="limits-renew")

    async def close(self) -> None:
        """Settle what has ended, as far as the book can be asked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await asyncio.gather(*(line.settled() for line in self._lines.values()))
        for line in self._lines.values():
            await line.close()
        if self._renewing is not None:
            await ended(self._renewing)

    @property
    def unsettled(self) -> int:
        """What the book has not been told yet."""
        return sum(line.unsettled for line in self._lines.values())

    async def admit(self, caller: TenantPrincipal, adapter: ResolvedAdapter | None, tokens: int) -> Lease:
        """Set aside one request of so many tokens, or raise RateLimited and touch nothing."""
        subjects = subjects_of(caller, adapter)
        if not subjects:
            return Lease(tokens, {}, None)
        impossible = never_fits(subjects, tokens)
        if impossible is not None:
            self._metrics.refused(caller.tenant_id, "size")
            raise impossible
        held, given, reply = await self._taken(caller.tenant_id, subjects, tokens)
        if reply.verdict == "no":
            self._metrics.refused(caller.tenant_id, reply.refused[0].kind)
            raise refusal_of(reply, given, tokens)
        line = self._line(caller.tenant_id)
        line.memory.hold(held)
        return Lease(tokens, headers_of(reply, given), _Ends(caller.tenant_id, line, self._share, held))

    async def _taken(
        self, tenant_id: str, subjects: tuple[Subject, ...], tokens: int
    ) -> tuple[Held, tuple[Subject, ...], Reply]:
        """From the book, or from this process's share; with the limits that decided."""
        line = self._line(tenant_id)
        asked = Held(_new_id(), subjects, tokens, alone=False)
        try:
            reply = await line.reserve(asked)
        except BookAway:
            self._metrics.shared()
            alone = Held(_new_id(), subjects, tokens, alone=True)
            given, reply = await self._share.reserve(tenant_id, line.memory, subjects, alone.id, tokens)
            return alone, given, reply
        self._share.forget(tenant_id)
        return asked, subjects, reply

    def _line(self, tenant_id: str) -> Line:
        line = self._lines.get(tenant_id)
        if line is None:
            line = self._lines[tenant_id] = Line(tenant_id, self._book, self._spent)
        return line

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            for line in list(self._lines.values()):
                with suppress(BookAway):
                    await line.renew()


_process = secrets.token_hex(8)
_numbers = itertools.count()


def _new_id() -> str:
    """Of a lease, among those of all processes."""
    return f"{_process}{next(_numbers):x}"


class _Ends:
    """Where a lease's end is told: to this process's share, and soon, until it hears, to the book."""

    def __init__(self, tenant_id: str, line: Line, share: LocalShare, held: Held) -> None:
        self._tenant_id = tenant_id
        self._line = line
        self._share = share
        self._held = held

    def extend(self, tokens: int) -> None:
        self._held.tokens += tokens
        self._share.extend(self._tenant_id, self._held, tokens)
        self._line.tell("extend", self._held, tokens)

    def settle(self, tokens: int) -> None:
        self._share.settle(self._tenant_id, self._held, tokens)
        self._line.tell("settle", self._held, tokens)
