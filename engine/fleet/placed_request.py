"""A request to a fleet: it runs on one engine, and on another one if the first is lost before its first delta."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from time import monotonic
from typing import Protocol

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.engine.fleet.member import Member
from loragate.v1 import engine_pb2 as pb


class Placer(Protocol):
    """Places requests, and learns from what becomes of them."""

    def place(self, submit: pb.Submit, lost_with: set[str]) -> Member:
        """Return the engine for a request that was lost with these engines. Raise EngineUnavailable if none is left."""
        ...

    def answered(self, submit: pb.Submit, member: Member) -> None:
        """Note that a request has its first delta."""
        ...

    def ended(self, submit: pb.Submit, seconds: float) -> None:
        """Note that a request has ended, after so many seconds on its engine."""
        ...


class PlacedRequest:
    """Iterates over the deltas. `end` aborts what is left of the request."""

    def __init__(self, submit: pb.Submit, observer: RequestObserver | None, placer: Placer) -> None:
        self._submit = submit
        self._observer = observer
        self._placer = placer
        self._tried: set[str] = set()
        self._run = AsyncExitStack()  # of the request, on its present engine
        self._next: Callable[[], Awaitable[pb.Delta]] = self._first

    async def begin(self) -> None:
        """Send the request to an engine. Raise EngineUnavailable."""
        while True:
            member = self._placer.place(self._submit, self._tried)
            self._tried.add(member.id)
            if self._observer is not None:
                self._observer.placed(member.id)
            try:
                deltas = await self._run.enter_async_context(member.client.generate(self._submit, self._observer))
            except EngineUnavailable:
                continue  # until no engine is left, which `place` raises
            member.begin()
            self._run.callback(self._end_on, member, monotonic())
            self._deltas, self._member = deltas, member
            return

    async def end(self) -> None:
        """Leave the engine."""
        await self._run.aclose()

    def __aiter__(self) -> AsyncIterator[pb.Delta]:
        return self

    def __anext__(self) -> Awaitable[pb.Delta]:
        return self._next()

    async def _first(self) -> pb.Delta:
        while True:
            try:
                delta = await anext(self._deltas)
            except EngineUnavailable as lost:
                await self._move(lost)
            else:
                self._placer.answered(self._submit, self._member)
                self._next = self._deltas.__anext__  # no more to do for each delta
                return delta

    def _end_on(self, member: Member, began: float) -> None:
        member.end()
        self._placer.ended(self._submit, monotonic() - began)

    async def _move(self, lost: EngineUnavailable) -> None:
        await self.end()
        self._run = AsyncExitStack()
        try:
            await self.begin()
        except EngineUnavailable:
            raise lost from None
