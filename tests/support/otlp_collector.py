"""A collector that receives spans over OTLP/HTTP and stores them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Received:
    """A received span; ids are in hexadecimal."""

    span: Span
    service: str

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def id(self) -> str:
        return self.span.span_id.hex()

    @property
    def parent(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def trace(self) -> str:
        return self.span.trace_id.hex()

    @property
    def attributes(self) -> dict[str, Any]:
        return {attribute.key: _value(attribute.value) for attribute in self.span.attributes}


class Collector:
    """The received spans; `raw` has the complete request bodies."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.spans: list[Received] = []
        self.raw: list[bytes] = []
        self._received = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._received:
            self.raw.append(body)
            for resource in request.resource_spans:
                names = {a.key: a.value.string_value for a in resource.resource.attributes}
                self.spans += [
                    Received(s, names["service.name"]) for scope in resource.scope_spans for s in scope.spans
                ]
            self._received.notify_all()

    def until(self, condition: Callable[[list[Received]], bool]) -> list[Received]:
        """Wait for spans that fulfil the condition. Blocks: call it in a thread if there is an event loop."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        with self._received:
            while not condition(self.spans):
                assert self._received.wait(deadline - time.monotonic()), (
                    f"only {[span.name for span in self.spans]} arrived"
                )
            return list(self.spans)


@contextmanager
def otlp_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _value(value: AnyValue) -> Any:
    if value.HasField("array_value"):
        return [_value(each) for each in value.array_value.values]
    return getattr(value, value.WhichOneof("value") or "string_value")
