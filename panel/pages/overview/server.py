"""The operator's overview, with rates between successive scrapes of the metrics."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from loragate.panel.api import Json
from loragate.panel.exposition import Exposition, parse, quantile
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading

_EVERY = 2.0
_SAMPLES = 60
_FIRST_TOKEN = "loragate_gateway_time_to_first_token_seconds"  # noqa: S105
_FAILED = ("INTERNAL", "UNAVAILABLE", "UNKNOWN", "DATA_LOSS")  # gRPC's statuses
_PROBES = ("/healthz", "/readyz", "/metrics", "/v1/whoami")


@dataclass(frozen=True)
class _Reading:
    """A scrape and its time; `parts` is the response of `/readyz`."""

    when: float
    page: Exposition
    parts: Json


def draw_server(context: PageContext) -> None:
    """Draw the page, which is updated every two seconds."""
    with div("head"):
        heading("Overview", "The whole server, live.")
    _Server(context).draw()


class _Server:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._readings: deque[_Reading] = deque(maxlen=_SAMPLES + 1)

    def draw(self) -> None:
        AsyncRegion(self._fetch, self._show, every=_EVERY)

    async def _fetch(self) -> _Reading:
        page = parse(await self._context.api.text("/metrics"))
        reading = _Reading(time.monotonic(), page, await self._context.api.readiness())
        self._readings.append(reading)
        return reading

    def _show(self, now: _Reading) -> None:
        oldest = self._readings[0]
        page = now.page
        with div("row-of wide"):
            for part, state in now.parts.get("parts", {}).items():
                with div("row-of"):
                    tag("span", part, classes="muted small")
                    state_chip(state)
        with div("grid-figures"):
            figure("Requests", _per_second(self._rates(_requests)), f"{formats.count(_in_flight(page))} in flight")
            figure("Tokens out", _per_second(self._rates(_tokens)), f"{formats.count(_tokens(page))} since the start")
            first = [
                quantile(share, oldest.page.buckets(_FIRST_TOKEN), page.buckets(_FIRST_TOKEN)) for share in (0.5, 0.99)
            ]
            slow = "no responses yet" if first[1] is None else f"median; 99 % within {formats.seconds(first[1])}"
            figure("Time to first token", formats.seconds(first[0]), slow)
            figure(
                "Errors",
                formats.count(max(0.0, _errors(page) - _errors(oldest.page))),
                "server errors, last two minutes",
            )
            figure("Shed", formats.count(_shed(page) - _shed(oldest.page)), "engine overloaded, last two minutes")
            running = page.total("loragate_engine_num_requests_running")
            waiting = page.total("loragate_engine_num_requests_waiting")
            figure("Running", formats.count(running), f"{formats.count(waiting)} waiting")
        with div("grid-2"):
            self._chart("Requests per second", self._rates(_requests))
            self._chart("Tokens per second", self._rates(_tokens))
        with div("row-of"):
            link("Engine details", "/engine", "button")
            link("Tenants and limits", "/tenants", "button")

    def _chart(self, title: str, values: list[float]) -> None:
        with div("card"), div("stack"):
            tag("h2", title)
            chart.line(title, values, max_points=_SAMPLES)
            muted("The last two minutes.", "small")

    def _rates(self, counted: Callable[[Exposition], float]) -> list[float]:
        found = []
        readings = list(self._readings)
        for before, after in pairwise(readings):
            grown = counted(after.page) - counted(before.page)
            found.append(max(0.0, grown) / max(after.when - before.when, 1e-3))
        return found


def _requests(page: Exposition) -> float:
    return page.total("loragate_http_requests_total", lambda labels: labels.get("route") not in _PROBES) + page.total(
        "loragate_grpc_calls_total"
    )


def _tokens(page: Exposition) -> float:
    return page.total("loragate_engine_generation_tokens_total")


def _errors(page: Exposition) -> float:
    """Return the number of server errors, without requests rejected for overload."""
    http = page.total("loragate_http_requests_total", lambda labels: labels.get("status", "").startswith("5"))
    grpc = page.total("loragate_grpc_calls_total", lambda labels: labels.get("status") in _FAILED)
    return http + grpc - _shed(page, "503")


def _shed(page: Exposition, *statuses: str) -> float:
    """Return the requests rejected by the gateway, always with 503, and by the engine with one of these statuses, or
    any."""
    rejected = page.total(
        "loragate_gateway_engine_rejections_total", lambda labels: not statuses or labels.get("status") in statuses
    )
    return page.total("loragate_gateway_shed_requests_total") + rejected


def _in_flight(page: Exposition) -> float:
    """Return the requests in flight, without our own scrape."""
    return max(0.0, page.total("loragate_http_requests_in_flight") - 1) + page.total("loragate_grpc_calls_in_flight")


def _per_second(rates: list[float]) -> str:
    recent = rates[-5:]
    return f"{sum(recent) / len(recent):.1f}/s" if recent else "–"
