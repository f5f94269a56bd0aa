"""A request to a fleet: it runs on one engine, and on another one if the first is lost before its first delta."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic
from types import TracebackType
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
    """Iterates over the deltas. Entering the block sends the request to an engine; leaving it aborts what is left."""

    def __init__(self, submit: pb.Submit, observer: RequestObserver | None, placer: Placer) -> None:
        self._submit = submit
        self._observer = observer
        self._placer = placer
        self._tried: set[str] = set()
        self._run: AbstractAsyncContextManager[AsyncIterator[pb.Delta]] | None = None  # on its present engine
        self._next: Callable[[], Awaitable[pb.Delta]] = self._first

    async def __aenter__(self) -> "PlacedRequest":
        """Send the request to an engine. Raise EngineUnavailable."""
        while True:
            member = self._placer.place(self._submit, self._tried)
            self._tried.add(member.id)
            if self._observer is not None:
                self._observer.placed(member.id)
            try:
                run = member.client.generate(self._submit, self._observer)
                self._deltas = await run.__aenter__()
            except EngineUnavailable:
                continue  # until no engine is left, which `place` raises
            self._run, self._member, self._began = run, member, monotonic()
            member.begin()
            return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the engine."""
        run, self._run = self._run, None
        if run is None:
            return
        self._member.end()
        self._placer.ended(self._submit, monotonic() - self._began)
        await run.__aexit__(kind, error, traceback)

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

    async def _move(self, lost: EngineUnavailable) -> None:
        await self.__aexit__(None, None, None)
        try:
            await self.__aenter__()
        except EngineUnavailable:
            raise lost from None
