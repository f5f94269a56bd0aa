"""An interceptor that opens a span for each gRPC call."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import grpc.aio
from opentelemetry.trace import Span

from loragate.gateway.tracing.spans import RequestTracer, set_failed

_TRACED = "/loragate.v1."  # not health and reflection
_SERVER_ERRORS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN})

Handler = Callable[[Any, Any], Awaitable[None]]


class TracingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Uses the names and attributes of OpenTelemetry's conventions for RPC servers."""

    def __init__(self, tracer: RequestTracer) -> None:
        self._tracer = tracer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Wrap the handler of a method; all of them handle streams in both directions."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(_TRACED):
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        traceparent = str(metadata.get("traceparent", ""))
        handle = cast(Handler, handler.stream_stream)
        return grpc.stream_stream_rpc_method_handler(self._traced(handle, method, traceparent))

    def _traced(self, handle: Handler, method: str, traceparent: str) -> Handler:
        async def traced(requests: Any, context: Any) -> None:
            with self._tracer.request(method.removeprefix("/"), traceparent) as spans:
                try:
                    await handle(requests, context)
                finally:
                    if spans is not None:
                        _describe(spans.root, method, context.code())

        return traced


def _describe(span: Span, method: str, code: grpc.StatusCode | int | None) -> None:
    status = code if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK
    span.set_attribute("rpc.system.name", "grpc")
    span.set_attribute("rpc.method", method.removeprefix("/"))
    span.set_attribute("rpc.response.status_code", status.name)
    if status in _SERVER_ERRORS:
        set_failed(span, status.name)
