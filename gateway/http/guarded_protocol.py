"""uvicorn's HTTP protocol with bounds on what comes around a body, and on how long a client may take.

httptools keeps collecting header bytes for as long as a client sends them, and nothing above it sees a request before
the headers are complete; nor does uvicorn end a connection whose client does not go on with a request, or does not
read its answer.
"""

from asyncio import TimerHandle, Transport
from functools import cache
from http import HTTPStatus
from typing import ClassVar, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loragate.gateway.http.envelope import envelope
from loragate.gateway.http.write_coalescing import CorkedTransport

MAX_HEAD_BYTES = 64 << 10  # of a request line with its headers; of what is neither head nor body in a row
MAX_HEADERS = 256
SLOWEST_READER = 500  # bytes a second

# A connection that is closed on a client which still sends is reset, and the client never reads why.
_LINGER_SECONDS = 1.0
_LOOKS = 4  # at each connection in `stall_seconds`


@cache
def protocol(stall_seconds: float) -> type["GuardedProtocol"]:
    """For clients that get so long to begin a request and to go on with an answer."""
    return type("Protocol", (GuardedProtocol,), {"stall_seconds": stall_seconds})


class GuardedProtocol(HttpToolsProtocol):
    """Refuses heads that are too large or ambiguous, and leaves whoever does not go on.

    Requests are not pipelined: while one is answered nothing else is read into, so that its client's leaving is seen,
    and a connection on which more came is closed after the answer; its client sends the rest again.
    """

    stall_seconds: ClassVar[float] = 60.0

    _deaf = False  # whatever else comes is thrown away
    _upgrades = False  # the client would like to speak something else
    _went_on = False  # the last read brought a whole head, a part of a body, or a request's end
    _around = 0  # bytes since then
    _head_due: float | None = None  # when the next request's head must be complete
    _unread: tuple[float, int] | None = None  # since when so many bytes wait for the client
    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(Transport, CorkedTransport(transport, self.loop)))
        self.access_log = False  # uvicorn's lines hold URLs as they were sent, perhaps with a key
        self._await_head()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._went_on = False
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        self._around = 0 if self._went_on else self._around + len(data)
        if self._around > MAX_HEAD_BYTES:
            self._refuse_size()

    def on_message_begin(self) -> None:
        self._upgrades = False
        super().on_message_begin()
        if self._answers:
            self._deaf = True
            self.cycle.keep_alive = False

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        self._went_on = True
        self._upgrades = self.parser.should_upgrade()
        size, hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value)
            hosts += name == b"host"
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse_size()
        elif hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._refuse(HTTPStatus.BAD_REQUEST, "There must be one Host header.", "invalid_host")
        elif not self._upgrades:
            self._head_due = None
            super().on_headers_complete()
            self.headers = []  # what comes behind a body is no header of its request

    def on_body(self, body: bytes) -> None:
        self._went_on = True
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._went_on = True
        if not (self._deaf or self._upgrades):
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_due = None  # the next request is here already

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP; behind a request that is answered nobody asks what it is."""
        if not self._deaf:
            self._refuse(HTTPStatus.BAD_REQUEST, "This is not valid HTTP.", "invalid_http")

    @property
    def _answers(self) -> bool:
        """A request is under way, and not all of its answer's bytes are written. Whoever has all of them may go on,
        though the application has not said yet that these were the last."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return not cycle.response_started or cycle.chunked_encoding or cycle.expected_content_length > 0

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._deaf:
                self._parse_without_upgrade(data[upgrade.args[0] :])

    def _parse_without_upgrade(self, behind: bytes) -> None:
        """The request again without what it asks for beside: nothing else is spoken here, and httptools leaves the body
        unread, so that it would be taken for the next request."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self._refuse(HTTPStatus.BAD_REQUEST, "This server is no proxy.", "invalid_http")
            return
        lines = [method + b" " + self.url + b" HTTP/" + version.encode()]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + behind)

    def _refuse_size(self) -> None:
        words = "The request line and headers are too large."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, words, "headers_too_large")

    def _refuse(self, status: HTTPStatus, words: str, code: str) -> None:
        self._deaf = True
        if not self._give_up_request():
            self.transport.abort()
            return
        body = orjson.dumps(envelope(words, "invalid_request_error", None, code))
        head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _give_up_request(self) -> bool:
        """Whoever answers the request is told that its client has left; False where an answer is under way."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return True
        cycle.disconnected = True
        cycle.message_event.set()
        return not cycle.response_started

    def _await_head(self) -> None:
        self._head_due = self.loop.time() + self.stall_seconds

    def _look_later(self) -> None:
        self._timer = self.loop.call_later(self.stall_seconds / _LOOKS, self._look)

    def _look(self) -> None:
        self._look_later()
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if self._head_due is not None and now > self._head_due and not unread:
            self.transport.close()
        elif not unread or not self._grows_no_more:
            self._unread = None
        elif self._unread is None:
            self._unread = (now, unread)
        else:
            self._judge(now, unread, *self._unread)

    def _judge(self, now: float, unread: int, since: float, before: int) -> None:
        if now - since < self.stall_seconds:
            return
        if before - unread < SLOWEST_READER * (now - since):
            self.transport.abort()
        self._unread = (now, unread)

    @property
    def _grows_no_more(self) -> bool:
        """What waits for the client is all there is for now."""
        return self.flow.write_paused or self.transport.is_closing() or self._head_due is not None
