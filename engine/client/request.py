"""One request of the engine's client: its output until it is read, and its observer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from loragate.engine.client.errors import EngineError, EngineRequestError
from loragate.v1 import engine_pb2 as pb

_WITHOUT_RESULT = (pb.FINISH_REASON_ERROR, pb.FINISH_REASON_ABORTED)


class RequestObserver(Protocol):
    """Observes a request for as long as the engine works on it, also after its client has left. No method may wait."""

    def placed(self, engine_id: str) -> None:
        """Record the engine of a fleet that the request is about to be sent to."""
        ...

    def begun(self, abort: Callable[[int], None]) -> None:
        """Record that the request was sent; `abort` ends its completion of this index in the engine."""
        ...

    def received(self, delta: pb.Delta) -> None:
        """Record a delta as it arrives, whether it will be read or not."""
        ...

    def ended(self) -> None:
        """Record that the engine does nothing more for the request, or can no longer be asked."""
        ...


class Request:
    """The unread output of a request: one delta per completion, which is extended until it is read.

    Individual deltas would be large, because each keeps the memory of the whole frame that it came in.
    """

    def __init__(self, completions: int, observer: RequestObserver | None) -> None:
        self.open = set(range(completions))  # the completions that the engine has not ended
        self.left = False  # its reader has left
        self._observer = observer
        self._unread: dict[int, pb.Delta] = {}  # by the completion's index, the longest unread first
        self._error: EngineError | None = None
        self._news = asyncio.Event()

    def put(self, delta: pb.Delta) -> None:
        """Take a delta of the engine."""
        if self._observer is not None:
            self._observer.received(delta)
        reason = delta.finish_reason
        if reason == pb.FINISH_REASON_ERROR:
            self._error = _error_from(delta.error)
        elif reason != pb.FINISH_REASON_ABORTED and not self.left:
            self._add(delta)
        if reason:
            whole = reason in _WITHOUT_RESULT and not delta.HasField("computed")
            self._end(list(self.open) if whole else [delta.index])
        self._news.set()

    def fail(self, error: EngineError) -> None:
        """End the request because its session has ended."""
        self._error = error
        self._end(list(self.open))
        self._news.set()

    def drop_unread(self) -> None:
        """Drop what will not be read."""
        self.left = True
        self._unread.clear()

    async def deltas(self) -> AsyncIterator[pb.Delta]:
        while True:
            while self._unread:
                yield self._unread.pop(next(iter(self._unread)))
            if self._error is not None:
                raise self._error
            if not self.open:
                return
            self._news.clear()
            await self._news.wait()

    def _add(self, delta: pb.Delta) -> None:
        unread = self._unread.setdefault(delta.index, delta)
        if unread is not delta:
            unread.MergeFrom(delta)

    def _end(self, indices: Iterable[int]) -> None:
        before = bool(self.open)
        self.open.difference_update(indices)
        if before and not self.open and self._observer is not None:
            self._observer.ended()


def _error_from(error: pb.EngineError) -> EngineRequestError:
    retry_after = error.retry_after_ms / 1000 or None
    return EngineRequestError(error.code, error.message, retry_after=retry_after, own_queue=error.own_queue)
