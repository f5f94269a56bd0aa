"""Metrics of the gateway's requests.

Several workers on one port return the same metrics: with PROMETHEUS_MULTIPROC_DIR set, prometheus_client stores each
worker's values in files there, and a scrape of any worker adds them up. The counters include dead workers.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, disable_created_metrics
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LAG_SAMPLE_SECONDS = 0.5

disable_created_metrics()  # type: ignore[no-untyped-call]  # unused, and would double the number of series


class HttpMetrics:
    """One per application. No label contains a client's text: routes are templates."""

    def __init__(self) -> None:
        self._shared = os.environ.get(SHARED_DIRECTORY)
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        registry = self.registry = CollectorRegistry()
        self._requests = Counter(
            "loragate_http_requests",
            "HTTP requests, by status; 499 means that the client left before its response began.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "loragate_http_request_duration_seconds",
            "Time from a request's headers to the last byte of its response.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "loragate_http_requests_in_flight",
            "Requests whose response is not complete.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._ready = Gauge(
            "loragate_gateway_ready_workers",
            "Gateway processes that can serve requests: connected to the engine, with a known base model.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._lag = Histogram(
            "loragate_gateway_event_loop_lag_seconds",
            "Delay of a worker's event loop, sampled.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a request while the block lasts."""
        return self._in_flight.track_inprogress()

    def completed(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record that a request received its response, or that its client left."""
        series = self._series.get((method, route, status))
        if series is None:
            series = self._new_series(method, route, status)
        requests, durations = series
        requests.inc()
        durations.observe(seconds)

    def _new_series(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        method = method if method in METHODS else "other"
        series = (self._requests.labels(method, route, status), self._seconds.labels(route))
        if method != "other":  # a client chooses the others
            self._series[method, route, status] = series
        return series

    def ready(self, ready: bool) -> None:
        """Record whether this worker can serve requests."""
        self._ready.set(int(ready))

    async def sample_loop_lag(self) -> None:
        """Record the event loop's lag until cancelled: anything that blocks the loop delays every request."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_SAMPLE_SECONDS
            await asyncio.sleep(_LAG_SAMPLE_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))

    def families(self) -> Iterable[Metric]:
        """Return the metrics of this process, or of all workers that share the directory."""
        if self._shared is None:
            return self.registry.collect()
        _remove_dead_workers(Path(self._shared))
        return MultiProcessCollector(None, self._shared).collect()  # type: ignore[no-untyped-call,no-any-return]


def _remove_dead_workers(directory: Path) -> None:
    """Remove dead workers from the gauges."""
    for file in directory.glob("gauge_live*.db"):
        pid = int(file.stem.rsplit("_", 1)[1])
        if not _is_alive(pid):
            with suppress(FileNotFoundError):  # another worker may do the same at the same time
                mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
