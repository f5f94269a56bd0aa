"""uvicorn's HTTP protocol with a bound on what comes before a body.

httptools keeps collecting header bytes for as long as a client sends them; nothing above it sees a request before
the headers are complete.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10

_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_BODY = (
    b'{"error":{"message":"The request line and headers are too large.","type":"invalid_request_error",'
    b'"param":null,"code":"headers_too_large"}}'
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up when a request's head grows over `MAX_HEAD_BYTES`."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_REFUSAL % (len(_BODY), _BODY))
                self.transport.close()
