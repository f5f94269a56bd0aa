"""Server-sent events in OpenAI's format.

Nothing is sent before the first event, so a failure until then is an ordinary HTTP error. A later failure is a
`data: {"error": …}` event, after which there is no `[DONE]`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loragate.gateway.errors import ApiError, InternalError
from loragate.gateway.http.access_log import log_exception
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import error_body
from loragate.gateway.http.lifecycle import Lifecycle

log = logging.getLogger(__name__)

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class Events:
    """The objects to send, the response's headers, and the object to send for a failure.

    `named`: each object's `type` is also the name of its event, and no `[DONE]` follows.
    """

    headers: Mapping[str, str]
    objects: AsyncGenerator[Mapping[str, Any], None]
    failure: Callable[[ApiError], Mapping[str, Any]] = error_body
    named: bool = False


class EventStream(Response):
    """Opens `source`, sends each of its objects as one event, closes it, and sends `[DONE]`.

    `source` is closed as soon as the client disconnects, reads nothing for `stall_seconds`, or the server has to stop.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AbstractAsyncContextManager[Events], lifecycle: Lifecycle, stall_seconds: float) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)
        self._source = source
        self._lifecycle = lifecycle
        self._stall_seconds = stall_seconds

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Set the headers of a stream, which has no content-length."""
        self.body = b""
        super().init_headers(headers)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = _EventWriter(send, self, self._stall_seconds)
        try:
            await supervise(self._pump(writer), receive, self._lifecycle)
        except ClientDisconnect:
            raise
        except ApiError as error:
            await writer.fail(error)
        except Exception as error:
            request_id = context_of(scope).request_id
            log_exception(log, error, request_id)
            await writer.fail(InternalError(request_id))

    async def _pump(self, writer: "_EventWriter") -> None:
        async with self._source as events, aclosing(events.objects) as objects:
            self.headers.update(events.headers)
            writer.events = events
            async for each in objects:
                await writer.write(each)
        if not events.named:
            await writer.event(b"[DONE]")
        await writer.end()


class _EventWriter:
    """Writes events to the connection."""

    def __init__(self, send: Send, response: Response, stall_seconds: float) -> None:
        self._send = send
        self._response = response
        self._stall_seconds = stall_seconds
        self._started = False
        self.events: Events | None = None

    async def write(self, each: Mapping[str, Any]) -> None:
        if self.events is not None and self.events.named:
            await self.event(orjson.dumps(each), b"event: " + each["type"].encode() + b"\n")
        else:
            await self.event(orjson.dumps(each))

    async def event(self, data: bytes, name: bytes = b"") -> None:
        await self._start()
        await self._body(name + b"data: " + data + b"\n\n", more=True)

    async def fail(self, error: ApiError) -> None:
        """Send `error` as an event; raise it if it can still become an HTTP error."""
        if not self._started:
            raise error
        assert self.events is not None
        await self.write(self.events.failure(error))
        await self.end()

    async def end(self) -> None:
        await self._start()
        await self._body(b"", more=False)

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._response.raw_headers})

    async def _body(self, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ClientDisconnect from None
