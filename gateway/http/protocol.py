"""uvicorn's HTTP protocol with a bound on what comes before a body.

httptools keeps collecting header bytes for as long as a client sends them; nothing above it sees a request before
the headers are complete.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10  # beyond what the first read brought

# A connection that is closed on a client which still sends is reset, and the client never reads why.
_LINGER_SECONDS = 1.0

_BODY = (
    b'{"error":{"message":"The request line and headers are too large.","type":"invalid_request_error",'
    b'"param":null,"code":"headers_too_large"}}'
)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up when a request's head grows too large."""

    _in_head = False
    _head_bytes = 0
    _refused = False

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        continues_head = self._in_head
        super().data_received(data)
        if continues_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse()

    def _refuse(self) -> None:
        self._refused = True
        self.transport.write(_REFUSAL)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
