"""One tenant's line to the book: one call at a time, and all that comes up meanwhile is in the next one.

So a call is waited for by many where there are many, and the book is asked less often the busier it is.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from loragate.gateway.limits.backend import MICROSECONDS, Answer, Book, BookAway, Reply
from loragate.gateway.limits.observed_state import Held, Memory
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.usage_totals import Spent
from loragate.gateway.resilience.timeouts import ended, happens

LIFE = 30 * MICROSECONDS  # of a lease that nobody renews
_MOST_AT_ONCE = 128  # asks of one call
_MOST_LEASES = 256  # that one ask names
_MOST_UNSETTLED = 100_000
_RETRY_SECONDS = 0.25
_COMPANY_SECONDS = 0.005  # that a settlement waits for the next request to come along

T = TypeVar("T")


class Line:
    """`memory` is of what the book said and was told here."""

    def __init__(self, tenant_id: str, book: Book, spent: Spent) -> None:
        self.memory = Memory()
        self._tenant_id = tenant_id
        self._book = book
        self._spent = spent
        self._asking: deque[_Asking] = deque()
        self._telling: deque[_Telling] = deque()
        self._settled = asyncio.Event()
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()  # something cannot wait for company
        self._talk: asyncio.Task[None] | None = None

    @property
    def unsettled(self) -> int:
        """What the book has not been told yet."""
        return len(self._telling)

    async def reserve(self, held: Held) -> Reply:
        """Raises BookAway as soon as a call fails, whoever it was made for; then nothing is held."""
        asking = _Asking(held, asyncio.get_running_loop().create_future())
        self._asking.append(asking)
        self._go_on(hurry=True)
        try:
            return await asking.reply
        except (BookAway, asyncio.CancelledError):
            self._disown(asking)
            raise

    def tell(self, what: str, held: Held, tokens: int) -> None:
        """Soon, and again until it is heard."""
        if len(self._telling) == _MOST_UNSETTLED:
            self._telling.popleft().forget(self.memory)  # too old: its lease expires
        self._telling.append(_Telling(what, held, tokens))
        self._go_on(hurry=self.memory.is_tight(held))

    async def renew(self) -> None:
        """All that is held. Raises BookAway."""
        subjects = [subject for subject, _, _ in self.memory.seen.values()]
        for ids in _pieces(list(self.memory.held)):
            await self._ask([_Asked("renew", subjects, {"ids": ids})])

    async def settled(self) -> None:
        """Wait until there is nothing left to tell."""
        while self._telling:
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Say no more."""
        if self._talk is not None:
            await ended(self._talk)

    def _disown(self, asking: "_Asking") -> None:
        """Nobody will use what the book gave, if it was asked at all."""
        if asking.sent:
            self.tell("settle", asking.held, 0)
        elif asking in self._asking:
            self._asking.remove(asking)

    def _go_on(self, *, hurry: bool) -> None:
        self._news.set()
        if hurry:
            self._hurry.set()
        if self._talk is None or self._talk.done():
            self._talk = asyncio.create_task(self._talk_on(), name="limits-line")

    async def _talk_on(self) -> None:
        while self._asking or self._telling:
            await happens(self._hurry, _COMPANY_SECONDS)
            self._hurry.clear()
            self._news.clear()
            if not await self._say() and not self._asking:
                await happens(self._news, _RETRY_SECONDS)
        self._settled.set()

    async def _say(self) -> bool:
        """Whether the book heard it. What is told goes before what is asked: it makes room."""
        telling = list(islice(self._telling, _MOST_AT_ONCE))
        asking = [self._asking.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._asking)))]
        for each in asking:
            each.sent = True
        unheard, self.memory.unheard = self.memory.unheard, []
        adopting = [held.handed_in for held in unheard if held.id in self.memory.held]
        adopted = [_Asked("adopt", (), {"leases": leases}) for leases in _pieces(adopting)]
        try:
            replies = await self._ask([*adopted, *(told.asked for told in telling), *(asked.asked for asked in asking)])
        except BaseException as error:
            self.memory.unheard += unheard
            for each in chain(asking, self._asking):
                each.fail(error)
            self._asking.clear()
            if isinstance(error, BookAway):
                return False
            raise
        for told in telling:
            if self._telling and self._telling[0] is told:
                self._telling.popleft().forget(self.memory)
        for each, reply in zip(asking, replies[len(replies) - len(asking) :], strict=True):
            each.succeed(reply)
        return True

    async def _ask(self, asks: "Sequence[_Asked]") -> list[Reply]:
        """Hands in what we remember where the book has forgotten it. Raises BookAway."""
        replies: dict[int, Reply] = {}
        left = list(enumerate(asks))
        for _ in range(3):
            answer = await self._call([ask for _, ask in left])
            replies.update((place, reply) for (place, _), reply in zip(left, answer.replies, strict=True))
            left = [(place, ask) for place, ask in left if replies[place].verdict == "lost"]
            if not left:
                return [replies[place] for place in range(len(asks))]
            await self._hand_in([subject for _, ask in left for subject in ask.subjects], answer.replies[0].now)
        raise BookAway("it keeps forgetting")

    async def _call(self, asks: "Sequence[_Asked]") -> Answer:
        details = [ask.details for ask in asks]
        answer = await self._book.ask(self._tenant_id, self.memory.born, details)
        for ask, reply in zip(asks, answer.replies, strict=True):
            self.memory.see(answer.born, reply, ask.subjects)
        return answer

    async def _hand_in(self, subjects: Sequence[Subject], now: float) -> None:
        memory = self.memory
        sums = await self._spent.sums(
            self._tenant_id, tuple({subject.name: subject for subject in subjects}.values()), now
        )
        held = [each.handed_in for each in memory.held.values()]
        restore = {
            "what": "restore",
            "life": LIFE,
            "fresh": secrets.token_hex(8),
            "subjects": [*memory.states(now), *sums],
            "leases": held[:_MOST_LEASES],
        }
        memory.born = (await self._book.ask(self._tenant_id, memory.born, [restore])).born
        for leases in _pieces(held[_MOST_LEASES:]):
            await self._call([_Asked("adopt", (), {"leases": leases})])


@dataclass(frozen=True, slots=True)
class _Asked:
    """One ask of a call."""

    what: str
    subjects: Sequence[Subject]
    more: Mapping[str, Any]

    @property
    def details(self) -> dict[str, Any]:
        """As the book reads it."""
        subjects = [subject.asked for subject in self.subjects]
        return {"what": self.what, "life": LIFE, "subjects": subjects, **self.more}


@dataclass(slots=True, eq=False)
class _Asking:
    """Somebody waits to be admitted."""

    held: Held
    reply: asyncio.Future[Reply]
    sent: bool = False  # the book may have heard it

    @property
    def asked(self) -> _Asked:
        return _Asked("reserve", self.held.subjects, {"id": self.held.id, "tokens": self.held.tokens})

    def succeed(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, error: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(error if isinstance(error, Exception) else BookAway("this process ends"))


@dataclass(frozen=True, slots=True, eq=False)
class _Telling:
    """What the book is to be told soon."""

    what: str
    held: Held
    tokens: int

    @property
    def asked(self) -> _Asked:
        return _Asked(self.what, self.held.subjects, {"id": self.held.id, "tokens": self.tokens})

    def forget(self, memory: Memory) -> None:
        if self.what == "settle":
            memory.held.pop(self.held.id, None)


def _pieces(leases: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(leases), _MOST_LEASES):
        yield leases[start : start + _MOST_LEASES]
