"""A middleware that opens a span for each HTTP request."""

from opentelemetry.trace import Span
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loragate.gateway.http.metrics import METHODS
from loragate.gateway.http.middleware import PROBES
from loragate.gateway.tracing.spans import RequestTracer, set_failed


class TracingMiddleware:
    """Uses the names and attributes of OpenTelemetry's conventions for HTTP servers."""

    def __init__(self, app: ASGIApp, tracer: RequestTracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._tracer.request(method, Headers(scope=scope).get("traceparent", "")) as spans:
            try:
                await self._app(scope, receive, watched)
            finally:
                if spans is not None:
                    _describe(spans.root, method, getattr(scope.get("route"), "path", None), status)


def _describe(span: Span, method: str, route: str | None, status: int) -> None:
    """Describe the request. `route` is a template, never the path as sent."""
    span.set_attribute("http.request.method", method)
    if route is not None:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    if status:
        span.set_attribute("http.response.status_code", status)
    if not status or status >= 500:
        set_failed(span, str(status) if status else "client_gone")
