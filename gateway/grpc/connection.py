"""The messages of one call."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.gateway.connections.peers import TrustedProxies, address_of
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.bodies import BodyCounter, Pace, ReservedBytes

T = TypeVar("T")

_PROMPT_SECONDS = 0.5  # a message of normal size has arrived by then


class ClientGone(Exception):
    """The client has disconnected, or does not read its messages."""


class MessageStream:
    """Reads and writes a call's messages as bytes.

    When a task that awaits an operation is cancelled, grpc.aio frees the operation's memory while its core still writes
    to it. Therefore every operation runs in a task of its own, which is never cancelled and ends with the call at the
    latest.
    """

    def __init__(
        self, context: "grpc.aio.ServicerContext[Any, Any]", max_bytes: int, pace: Pace, proxies: TrustedProxies
    ) -> None:
        self.metadata = _texts(context)
        self.peer = proxies.client_of(address_of(str(context.peer())), _values(context, "x-forwarded-for"))
        self._context = context
        self._max_bytes = max_bytes
        self._pace = pace
        self._stall_seconds = pace.stall_seconds
        self._operations: set[asyncio.Task[Any]] = set()
        self._begun = False

    async def message(self, reserved: ReservedBytes, limit: int | None = None, pace: Pace | None = None) -> bytes:
        """Return the only message of a request. Raise as `messages` does, and InvalidRequest if there is none."""
        async with aclosing(self.messages(limit or self._max_bytes, pace or self._pace, reserved)) as messages:
            async for message in messages:
                return message
        raise InvalidRequest("The call has no message.", code="invalid_message")

    async def messages(self, limit: int, pace: Pace, reserved: ReservedBytes) -> AsyncGenerator[bytes, None]:
        """Yield the client's messages. Raise PayloadTooLarge beyond `limit` bytes, RequestTimeout, ClientGone;
        TooManyRequests and Unavailable if the bytes of a message cannot be `reserved`.

        gRPC collects a message without saying how much of it has arrived. One that takes a while therefore counts with
        the size that it may have.
        """
        counter = BodyCounter(limit, pace)
        while True:
            reading = self._started(self._context.read())
            try:
                if not await _is_done(reading, min(_PROMPT_SECONDS, counter.timeout)):
                    reserved.extend_to(self._max_bytes)
                message = await self._result(reading, counter.timeout)
            except TimeoutError:
                raise counter.too_slow() from None
            if message is EOF:
                return
            counter.add(len(message))
            reserved.extend_to(len(message))
            reserved.shrink_to(len(message))
            yield message

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send a message, and `headers` before the first one. Raise ClientGone if the client does not read it."""
        try:
            if not self._begun:
                self._begun = True
                await self._operate(self._context.send_initial_metadata(tuple(headers.items())), self._stall_seconds)
            await self._operate(self._context.write(message), self._stall_seconds)
        except TimeoutError:
            raise ClientGone from None

    def finish(self, code: grpc.StatusCode, details: str, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        """Set the status with which the call ends once its handler returns."""
        self._context.set_code(code)
        self._context.set_details(details)
        self._context.set_trailing_metadata(trailers)

    async def _operate(self, operation: Coroutine[Any, Any, T], seconds: float) -> T:
        return await self._result(self._started(operation), seconds)

    def _started(self, operation: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._done)
        return task

    async def _result(self, task: asyncio.Task[T], seconds: float) -> T:
        if not await _is_done(task, seconds):
            raise TimeoutError
        try:
            return task.result()
        except grpc.aio.BaseError:
            raise ClientGone from None

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved, because nothing may be waiting for it any more


async def _is_done(task: asyncio.Task[T], seconds: float) -> bool:
    return task.done() or bool((await asyncio.wait((task,), timeout=seconds))[0])


def _texts(context: "grpc.aio.ServicerContext[Any, Any]") -> dict[str, str]:
    """Return the call's metadata, with the first of several values of one key."""
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(key, value)
    return found


def _values(context: "grpc.aio.ServicerContext[Any, Any]", key: str) -> list[str]:
    return [value for name, value in context.invocation_metadata() or () if name == key and isinstance(value, str)]
