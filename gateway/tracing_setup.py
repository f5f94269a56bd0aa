"""Set-up of OpenTelemetry's SDK from our settings. The SDK's own variables (`OTEL_…`) keep their meaning."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import FastAPI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from loragate.engine.client.client import Engine
from loragate.gateway.config.tracing import TracingConfig
from loragate.gateway.grpc.tracing_interceptor import TracingInterceptor
from loragate.gateway.http.tracing_middleware import TracingMiddleware
from loragate.gateway.resilience.timeouts import wait_for_event
from loragate.gateway.tracing.engine import TracedEngine
from loragate.gateway.tracing.spans import RequestTracer

_LAST_SECONDS = 2.0  # for the last spans, when this process ends


class Tracing:
    """Spans are sent by a separate thread. Spans that the collector does not accept are dropped; nothing waits for
    it."""

    def __init__(self, config: TracingConfig) -> None:
        resource = Resource.create({"service.name": "loragate-gateway", "service.version": version("loragate")})
        sampler = ParentBased(TraceIdRatioBased(config.sample_ratio))
        self._provider = TracerProvider(resource=resource, sampler=sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(config.traces_url)))
        tracer = self._provider.get_tracer("loragate", version("loragate"))
        self._tracer = RequestTracer(tracer, trusted=config.trust_traceparent)
        self.interceptor = TracingInterceptor(self._tracer)

    def watch(self, app: FastAPI) -> None:
        """Trace each request of the application."""
        app.add_middleware(TracingMiddleware, tracer=self._tracer)

    def engine(self, engine: Engine) -> TracedEngine:
        """Return a wrapper that traces the requests to `engine`."""
        return TracedEngine(engine)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send spans until the block ends, including the last ones."""
        try:
            yield
        finally:
            await self._send_the_last()

    async def _send_the_last(self) -> None:
        """Send the last spans in a thread for which nothing waits if it takes too long, not even the end of the
        process."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=shut_down, name="last-spans", daemon=True).start()
        await wait_for_event(sent, _LAST_SECONDS)
