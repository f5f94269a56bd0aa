"""What holds callers to their limits."""

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from loragate.adapter_store.adapter import ResolvedAdapter
from loragate.adapter_store.principal import TenantPrincipal
from loragate.gateway.limits.book import MICROSECONDS, Book, BookAway, Reply
from loragate.gateway.limits.headers import headers_of
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.local_share import LocalShare
from loragate.gateway.limits.memory import Held, Memory
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.refusal import never_fits, refusal_of
from loragate.gateway.limits.spent import Spent
from loragate.gateway.limits.subject import Subject, subjects_of

LIFE = 30 * MICROSECONDS  # of a lease that nobody renews
_RENEW_SECONDS = 10.0
_RETRY_SECONDS = 0.25
_LAST_SECONDS = 2.0  # to settle what is left when the process stops
_MOST_UNSETTLED = 100_000


class Limiter:
    """One per process. Asks the book; while that is away, gives out this process's share of the limits alone."""

    def __init__(self, book: Book, share: LocalShare, spent: Spent, metrics: LimitMetrics) -> None:
        self._book = book
        self._metrics = metrics
        self._share = share
        self._spent = spent
        self._memories: dict[str, Memory] = {}
        self._unsettled: deque[_Message] = deque()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to settle and to renew."""
        self._tasks = [
            asyncio.create_task(self._settle_for_ever(), name="limits-settle"),
            asyncio.create_task(self._renew_for_ever(), name="limits-renew"),
        ]

    async def close(self) -> None:
        """Settle what has ended, as far as the book can be asked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                while self._unsettled:
                    self._idle.clear()
                    await self._idle.wait()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def unsettled(self) -> int:
        """What the book has not been told yet."""
        return len(self._unsettled)

    async def admit(self, caller: TenantPrincipal, adapter: ResolvedAdapter | None, tokens: int) -> Lease:
        """Set aside one request of so many tokens, or raise RateLimited and touch nothing."""
        subjects = subjects_of(caller, adapter)
        if not subjects:
            return Lease(tokens, {}, None)
        impossible = never_fits(subjects, tokens)
        if impossible is not None:
            self._metrics.refused("size")
            raise impossible
        held, given, reply = await self._taken(caller.tenant_id, subjects, tokens)
        if reply.verdict == "no":
            self._metrics.refused(reply.refused[0].kind)
            raise refusal_of(reply, given, tokens)
        self._memory(caller.tenant_id).hold(held)
        return Lease(tokens, headers_of(reply, given), _Ends(self, caller.tenant_id, held))

    def extend(self, tenant_id: str, held: Held, tokens: int) -> None:
        """Set so many more aside, soon."""
        held.tokens += tokens
        self._share.extend(tenant_id, held, tokens)
        self._later("extend", tenant_id, held.subjects, id=held.id, tokens=tokens)

    def settle(self, tenant_id: str, held: Held, tokens: int) -> None:
        """It has used so many in all; said to the book soon, and again until it hears."""
        self._share.settle(tenant_id, held, tokens)
        self._later("settle", tenant_id, held.subjects, id=held.id, tokens=tokens)

    async def _taken(
        self, tenant_id: str, subjects: tuple[Subject, ...], tokens: int
    ) -> tuple[Held, tuple[Subject, ...], Reply]:
        """From the book, or from this process's share; with the limits that decided."""
        asked = Held(_new_id(), subjects, tokens, alone=False)
        try:
            return asked, subjects, await self._reserve(tenant_id, asked)
        except BookAway:
            self._disown(tenant_id, asked)
        except asyncio.CancelledError:
            self._disown(tenant_id, asked)
            raise
        self._metrics.shared()
        alone = Held(_new_id(), subjects, tokens, alone=True)
        given, reply = await self._share.reserve(tenant_id, self._memory(tenant_id), subjects, alone.id, tokens)
        return alone, given, reply

    def _disown(self, tenant_id: str, held: Held) -> None:
        """The book may have heard us, and nobody will use what it gave."""
        self._later("settle", tenant_id, held.subjects, id=held.id, tokens=0)

    async def _reserve(self, tenant_id: str, held: Held) -> Reply:
        memory = self._memory(tenant_id)
        unheard, memory.unheard = memory.unheard, []
        try:
            if unheard:
                running = [each.handed_in for each in unheard if each.id in memory.held]
                await self._ask("adopt", tenant_id, (), leases=running)
            reply = await self._ask("reserve", tenant_id, held.subjects, id=held.id, tokens=held.tokens)
        except (BookAway, asyncio.CancelledError):
            memory.unheard += unheard
            raise
        self._share.forget(tenant_id)
        return reply

    async def _ask(self, what: str, tenant_id: str, subjects: Sequence[Subject], **details: Any) -> Reply:
        """Hands in what we remember where the book has forgotten it. Raises BookAway."""
        memory = self._memory(tenant_id)
        asked = {"life": LIFE, "subjects": [subject.asked for subject in subjects], **details}
        for _ in range(3):
            reply = await self._book.ask(what, tenant_id, memory.born, asked)
            memory.see(reply, subjects)
            if reply.verdict != "lost":
                return reply
            await self._hand_in(tenant_id, memory, subjects, reply.now)
        raise BookAway("it keeps forgetting")

    async def _hand_in(self, tenant_id: str, memory: Memory, subjects: Sequence[Subject], now: float) -> None:
        sums = await self._spent.sums(tenant_id, subjects, now)
        details = {
            "life": LIFE,
            "fresh": secrets.token_hex(8),
            "subjects": [*memory.states(now), *sums],
            "leases": [held.handed_in for held in memory.held.values()],
        }
        reply = await self._book.ask("restore", tenant_id, memory.born, details)
        memory.born = reply.born

    def _memory(self, tenant_id: str) -> Memory:
        return self._memories.setdefault(tenant_id, Memory())

    def _later(self, what: str, tenant_id: str, subjects: tuple[Subject, ...], **details: Any) -> None:
        if len(self._unsettled) == _MOST_UNSETTLED:
            self._drop(self._unsettled.popleft())
        self._unsettled.append(_Message(what, tenant_id, subjects, details))
        self._news.set()

    async def _settle_for_ever(self) -> None:
        while True:
            self._news.clear()
            while self._unsettled:
                await self._settle_first()
            self._idle.set()
            await self._news.wait()

    async def _settle_first(self) -> None:
        message = self._unsettled[0]
        try:
            await self._ask(message.what, message.tenant_id, message.subjects, **message.details)
        except BookAway:
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if self._unsettled and self._unsettled[0] is message:
            self._drop(self._unsettled.popleft())

    def _drop(self, message: "_Message") -> None:
        """It was heard, or has become too old: then its lease expires."""
        if message.what == "settle":
            self._memory(message.tenant_id).held.pop(message.details["id"], None)

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            for tenant_id, memory in list(self._memories.items()):
                if memory.held:
                    subjects = [subject for subject, _, _ in memory.seen.values()]
                    with suppress(BookAway):
                        await self._ask("renew", tenant_id, subjects, ids=list(memory.held))


def _new_id() -> str:
    return secrets.token_hex(12)


@dataclass(frozen=True, slots=True)
class _Message:
    """What the book is to be told soon."""

    what: str
    tenant_id: str
    subjects: tuple[Subject, ...]
    details: dict[str, Any]


class _Ends:
    """Where a lease's end is told."""

    def __init__(self, limiter: Limiter, tenant_id: str, held: Held) -> None:
        self._limiter = limiter
        self._tenant_id = tenant_id
        self._held = held

    def extend(self, tokens: int) -> None:
        self._limiter.extend(self._tenant_id, self._held, tokens)

    def settle(self, tokens: int) -> None:
        self._limiter.settle(self._tenant_id, self._held, tokens)
