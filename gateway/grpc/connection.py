"""One call's side of the connection."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.body_limits import BodyCounter, Pace

T = TypeVar("T")


class Hangup(Exception):
    """The client is gone, or takes nothing any more."""


class Wire:
    """Reads and writes messages as bytes.

    grpc.aio lets go of the memory of an operation whose awaiting task is cancelled, while its core still writes
    there. So every operation runs in a task of its own, which nobody cancels: it ends with the call at the latest.
    """

    def __init__(self, context: "grpc.aio.ServicerContext[Any, Any]", max_bytes: int, pace: Pace) -> None:
        self.metadata = _texts(context)
        self._context = context
        self._max_bytes = max_bytes
        self._pace = pace
        self._stall_seconds = pace.stall_seconds
        self._operations: set[asyncio.Task[Any]] = set()
        self._begun = False

    async def message(self) -> bytes:
        """The only message of a request. Raises as `messages` does, and InvalidRequest where there is none."""
        async with aclosing(self.messages(self._max_bytes, self._pace)) as messages:
            async for message in messages:
                return message
        raise InvalidRequest("The call has no message.", code="invalid_message")

    async def messages(self, limit: int, pace: Pace) -> AsyncGenerator[bytes, None]:
        """Until the client has sent its last. Raises PayloadTooLarge beyond `limit` bytes, RequestTimeout, Hangup."""
        counter = BodyCounter(limit, pace)
        while True:
            try:
                message = await self._operate(self._context.read(), counter.timeout)
            except TimeoutError:
                raise counter.too_slow() from None
            if message is EOF:
                return
            counter.add(len(message))
            yield message

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """`headers` go out with the first message. Raises Hangup when the client takes no bytes for too long."""
        try:
            if not self._begun:
                self._begun = True
                await self._operate(self._context.send_initial_metadata(tuple(headers.items())), self._stall_seconds)
            await self._operate(self._context.write(message), self._stall_seconds)
        except TimeoutError:
            raise Hangup from None

    def finish(self, code: grpc.StatusCode, words: str, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        """What the call ends with, once its handler returns."""
        self._context.set_code(code)
        self._context.set_details(words)
        self._context.set_trailing_metadata(trailers)

    async def _operate(self, operation: Coroutine[Any, Any, T], seconds: float) -> T:
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._done)
        done, _ = await asyncio.wait((task,), timeout=seconds)
        if not done:
            raise TimeoutError
        try:
            return task.result()
        except grpc.aio.BaseError:
            raise Hangup from None

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # that nobody waits for it any more is no trouble


def _texts(context: "grpc.aio.ServicerContext[Any, Any]") -> dict[str, str]:
    """The call's metadata; of several values of one key the first."""
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(key, value)
    return found
