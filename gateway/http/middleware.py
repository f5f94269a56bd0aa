"""The outermost layer: request ids, rejection while draining, unexpected errors, the access log."""

import logging

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loragate.gateway.connections.peers import TrustedProxies
from loragate.gateway.errors import InternalError, ShuttingDown
from loragate.gateway.http.access_log import log_exception, write_access_line
from loragate.gateway.http.context import RequestContext, open_context
from loragate.gateway.http.envelope import error_response
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.metrics import HttpMetrics

log = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST = 499
PROBES = frozenset({"/healthz", "/readyz", "/metrics", "/health", "/ping"})


class RequestMiddleware:
    """Wraps every request."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle, metrics: HttpMetrics, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies
        self._lifecycle = lifecycle
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = open_context(scope, self._proxies)
        response = _Response(send, context)
        with self._lifecycle.request(), self._metrics.in_flight():
            try:
                await self._respond(scope, receive, response)
            finally:
                # The route's template, not the path, so that logs and labels do not contain what a client wrote.
                route = getattr(scope.get("route"), "path", "unmatched")
                self._metrics.completed(scope["method"], route, response.status, context.elapsed_seconds)
                # Probes arrive every few seconds and would hide other lines.
                level = logging.DEBUG if route in PROBES else logging.INFO
                write_access_line(level, scope["method"], route, context, response.status)

    async def _respond(self, scope: Scope, receive: Receive, response: "_Response") -> None:
        if self._lifecycle.draining and scope["path"] not in PROBES:
            await error_response(ShuttingDown(), scope)(scope, receive, response.send)
            return
        try:
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            response.status = _CLIENT_CLOSED_REQUEST
        except Exception as error:
            log_exception(log, error, response.context.request_id)
            if not response.started:
                failed = InternalError(response.context.request_id)
                await error_response(failed, scope)(scope, receive, response.send)


class _Response:
    """Adds the gateway's headers to the response and remembers its status."""

    def __init__(self, send: Send, context: RequestContext) -> None:
        self.context = context
        self.status = _CLIENT_CLOSED_REQUEST
        self.started = False
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.context.request_id
            headers["openai-processing-ms"] = str(self.context.elapsed_ms())
        await self._send(message)
