"""uvicorn's HTTP protocol with limits on what surrounds a body, and on how long a client may take.

httptools collects header bytes for as long as a client sends them, and the application does not see a request before
its headers are complete. Nor does uvicorn close a connection whose client does not continue a request, or does not read
its response.
"""

from asyncio import TimerHandle, Transport
from http import HTTPStatus
from typing import ClassVar, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loragate.gateway.connections.connection_limit import ConnectionLimit
from loragate.gateway.connections.write_coalescing import CoalescingTransport
from loragate.gateway.errors import envelope, error_type

MAX_HEAD_BYTES = 64 << 10  # of a request line with its headers; of consecutive bytes that are neither head nor body
MAX_HEADERS = 256
MIN_READ_RATE = 500  # bytes per second

# A connection that is closed while its client is still sending is reset, and the client cannot read the response.
_LINGER_SECONDS = 1.0
_CHECKS = 4  # of each connection per `stall_seconds`


def protocol(stall_seconds: float, limit: ConnectionLimit | None = None) -> type["GuardedProtocol"]:
    """Return the protocol class with this time limit for sending a request's head and for reading a response, and with
    this limit of connections."""
    return type("Protocol", (GuardedProtocol,), {"stall_seconds": stall_seconds, "connection_limit": limit})


class GuardedProtocol(HttpToolsProtocol):
    """Rejects heads that are too large or ambiguous, and closes connections that make no progress.

    Requests are not pipelined: input that arrives during a response is ignored, so that a disconnect is noticed. A
    connection with such input is closed after the response, and its client repeats the further requests.

    An upgrade to WebSocket is declined like any other, unless uvicorn's settings name a WebSocket protocol.
    """

    stall_seconds: ClassVar[float] = 60.0
    connection_limit: ClassVar[ConnectionLimit | None] = None

    _ignores_input = False  # all further input is discarded
    _wants_upgrade = False  # the client asks for another protocol, which it does not get
    _progressed = False  # the last read contained a complete head, part of a body, or the end of a request
    _idle_bytes = 0  # read since then
    _head_deadline: float | None = None  # for the next request's complete head
    _unread_since: tuple[float, int] | None = None  # the time since when, and how many, bytes wait for the client
    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(Transport, CoalescingTransport(transport, self.loop)))
        self.access_log = False  # uvicorn's lines contain URLs as they were sent, perhaps with a key
        self._schedule_check()
        limit = self.connection_limit
        if limit is not None and not limit.open(self, self.client[0] if self.client else ""):
            message = "The server has as many connections as it may."
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, message, "too_many_connections")
            self.transport.close()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.connection_limit is not None:
            self.connection_limit.end(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        self._unset_keepalive_if_required()
        self._progressed = False
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        self._idle_bytes = 0 if self._progressed else self._idle_bytes + len(data)
        if self._idle_bytes > MAX_HEAD_BYTES:
            self._reject_size()

    def on_message_begin(self) -> None:
        self._wants_upgrade = False
        super().on_message_begin()
        if self._is_responding:
            self._ignores_input = True
            self.cycle.keep_alive = False

    def on_headers_complete(self) -> None:
        if self._ignores_input:
            return
        self._progressed = True
        becomes_websocket = self._becomes_websocket
        self._wants_upgrade = self.parser.should_upgrade() and not becomes_websocket
        size, hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value)
            hosts += name == b"host"
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._reject_size()
        elif hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._reject(HTTPStatus.BAD_REQUEST, "There must be exactly one Host header.", "invalid_host")
        elif not self._wants_upgrade:
            self._end_wait()
            super().on_headers_complete()
            if not becomes_websocket:
                self.headers = []  # trailers after a body are not headers of the request

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        if not self._ignores_input:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        if not (self._ignores_input or self._wants_upgrade):
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()  # the next request has already arrived

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def make_room(self) -> None:
        """Close the connection, which waits for a request, in favour of a newer one."""
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to the WebSocket protocol, which writes and closes it on its own. It counts no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self.connection_limit is not None:
            self.connection_limit.end(self)
        self.transport = cast(CoalescingTransport, self.transport).uncoalesced()
        super().handle_websocket_upgrade()

    @property
    def _becomes_websocket(self) -> bool:
        """Whether the current request is the handshake of a WebSocket."""
        return bool(self.parser.should_upgrade() and self._should_upgrade())

    def send_400_response(self, msg: str) -> None:
        """Reject input that is not HTTP, unless input is ignored."""
        if not self._ignores_input:
            self._reject(HTTPStatus.BAD_REQUEST, "This is not valid HTTP.", "invalid_http")

    @property
    def _is_responding(self) -> bool:
        """Whether a request is in progress and not all bytes of its response are written. A client that has all of
        them may continue, even if the application has not ended the response yet."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return not cycle.response_started or cycle.chunked_encoding or cycle.expected_content_length > 0

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._ignores_input:
                return
            if self._becomes_websocket:
                self.handle_websocket_upgrade()
            else:
                self._parse_without_upgrade(data[upgrade.args[0] :])

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its upgrade. No other protocol is supported, and httptools would leave the
        body unread, so that it would be parsed as the next request."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self._reject(HTTPStatus.BAD_REQUEST, "This server is not a proxy.", "invalid_http")
            return
        lines = [method + b" " + self.url + b" HTTP/" + version.encode()]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _reject_size(self) -> None:
        message = "The request line and headers are too large."
        self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "headers_too_large")

    def _reject(self, status: HTTPStatus, message: str, code: str) -> None:
        self._ignores_input = True
        if not self._abandon_request():
            self.transport.abort()
            return
        body = orjson.dumps(envelope(message, error_type(status), None, code))
        head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _abandon_request(self) -> bool:
        """Report a disconnect to the current request's application; return False if its response has begun."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return True
        cycle.disconnected = True
        cycle.message_event.set()
        return not cycle.response_started

    def _await_head(self) -> None:
        self._head_deadline = self.loop.time() + self.stall_seconds
        if self.connection_limit is not None:
            self.connection_limit.wait(self)

    def _end_wait(self) -> None:
        self._head_deadline = None
        if self.connection_limit is not None:
            self.connection_limit.serve(self)

    def _schedule_check(self) -> None:
        self._timer = self.loop.call_later(self.stall_seconds / _CHECKS, self._check)

    def _check(self) -> None:
        self._schedule_check()
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if self._head_deadline is not None and now > self._head_deadline and not unread:
            self.transport.close()
        elif not unread or not self._response_paused:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = (now, unread)
        else:
            self._check_reader(now, unread, *self._unread_since)

    def _check_reader(self, now: float, unread: int, since: float, before: int) -> None:
        if now - since < self.stall_seconds:
            return
        if before - unread < MIN_READ_RATE * (now - since):
            self.transport.abort()
        self._unread_since = (now, unread)

    @property
    def _response_paused(self) -> bool:
        """Whether no more output is written for now than what already waits for the client."""
        return self.flow.write_paused or self.transport.is_closing() or self._head_deadline is not None
