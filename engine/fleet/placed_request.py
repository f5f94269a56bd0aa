"""A request to a fleet: it runs on one engine, and on another one if the first is lost before its first delta."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.engine.fleet.member import Member
from loragate.v1 import engine_pb2 as pb

Place = Callable[[set[str]], Member]
"""Returns the engine for a request that was lost with these engines. Raises EngineUnavailable if none is left."""


class PlacedRequest:
    """Iterates over the deltas. `end` aborts what is left of the request."""

    def __init__(self, submit: pb.Submit, observer: RequestObserver | None, place: Place) -> None:
        self._submit = submit
        self._observer = observer
        self._place = place
        self._tried: set[str] = set()
        self._run = AsyncExitStack()  # of the request, on its present engine
        self._next: Callable[[], Awaitable[pb.Delta]] = self._first

    async def begin(self) -> None:
        """Send the request to an engine. Raise EngineUnavailable."""
        while True:
            member = self._place(self._tried)
            self._tried.add(member.id)
            if self._observer is not None:
                self._observer.placed(member.id)
            try:
                deltas = await self._run.enter_async_context(member.client.generate(self._submit, self._observer))
            except EngineUnavailable:
                continue  # until no engine is left, which `place` raises
            member.begin()
            self._run.callback(member.end)
            self._deltas = deltas
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
                self._next = self._deltas.__anext__  # no more to do for each delta
                return delta

    async def _move(self, lost: EngineUnavailable) -> None:
        await self.end()
        self._run = AsyncExitStack()
        try:
            await self.begin()
        except EngineUnavailable:
            raise lost from None
