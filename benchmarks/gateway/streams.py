"""Concurrent streams of one gateway worker: their number, the regularity of their tokens, and the cost of each.

    python -m benchmarks.gateway.streams                  # 1,000 streams of two tokens per second, one minute
    python -m benchmarks.gateway.streams --streams 100 --seconds 5

The worker authenticates, applies limits (Redis), resolves an adapter and meters; the engine has no model (`engine.py`)
and sends every running request one token in each step, two steps per second. All streams are open before the
measurement starts, and the clients close them at its end. The worker has its own core; the engine, Redis and the
clients share the others.
"""

import argparse
import asyncio
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import uvloop
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.worker import MESSAGES, Worker, running_worker
from benchmarks.lib.report import write

MB = 1 << 20
OPENED_PER_SECOND = 100
WORD = b" fox"  # the engine's only token
_LAG = re.compile(r'^loragate_gateway_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)

console = Console(stderr=True)


@dataclass(frozen=True)
class WorkerStats:
    """Statistics of the gateway under load."""

    worker: Worker
    redis: Redis

    @property
    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return float(self.worker.process.memory_info().rss / MB)

    @property
    def processor_seconds(self) -> float:
        return float(sum(self.worker.process.cpu_times()[:2]))

    def redis_calls(self) -> int:
        """Return the number of scripts run so far."""
        statistics: dict[str, Any] = self.redis.info("commandstats")
        return sum(each["calls"] for name, each in statistics.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))

    def lags(self) -> dict[float, float]:
        """Return the samples of the event loop's lag so far, by upper bound in seconds."""
        text = httpx.get(f"http://127.0.0.1:{self.worker.port}/metrics").raise_for_status().text
        return {float(bound): float(count) for bound, count in _LAG.findall(text)}


@dataclass
class Stream(asyncio.Protocol):
    """The connection of one client, which records the arrival times of its tokens."""

    payload: bytes
    arrivals: list[float] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    error: str = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.transport.write(self.payload)

    def data_received(self, data: bytes) -> None:
        if not self.arrivals and data.startswith(b"HTTP/1.1 ") and data[9:12] != b"200":
            self.error = data[:200].decode(errors="replace")
            self.started.set()
        self.arrivals += [time.perf_counter()] * data.count(WORD)
        if self.arrivals:
            self.started.set()

    def connection_lost(self, exception: Exception | None) -> None:
        self.error = self.error or "the server closed the connection"
        self.started.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="concurrent streams")
    parser.add_argument("--rate", type=float, default=2.0, help="tokens per second of each stream")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the measurement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gw") as folder, gateway(Path(folder), arguments.rate) as stats:
        figures = uvloop.run(measure(stats, arguments.streams, arguments.rate, arguments.seconds))
    show(figures)
    if len(sys.argv) == 1:
        write("gateway_streams", figures)


@contextmanager
def gateway(folder: Path, rate: float) -> Iterator[WorkerStats]:
    """Run a worker whose engine generates `rate` tokens per second for each request."""
    with (
        running_worker(folder, "--tokens-per-second", str(rate)) as worker,
        Redis(unix_socket_path=worker.redis_socket) as redis,
    ):
        yield WorkerStats(worker, redis)


async def measure(stats: WorkerStats, count: int, rate: float, seconds: float) -> dict[str, Any]:
    tokens = math.ceil((seconds + count / OPENED_PER_SECOND + 60) * rate)
    first = await open_streams(stats, 1, tokens)
    close_streams(first)
    idle, busy = stats.resident, os.getloadavg()[0]
    streams = await open_streams(stats, count, tokens)
    console.print(f"{count} streams are open")
    calls, lags = stats.redis_calls(), await asyncio.to_thread(stats.lags)
    spent, began = stats.processor_seconds, time.perf_counter()
    resident = 0.0
    while time.perf_counter() < began + seconds:
        await asyncio.sleep(0.5)
        resident = max(resident, stats.resident)
    ended = time.perf_counter()
    spent = stats.processor_seconds - spent
    calls, later = stats.redis_calls() - calls, await asyncio.to_thread(stats.lags)
    held = [stream for stream in streams if not stream.error]
    within = [[at for at in stream.arrivals if began <= at < ended] for stream in held]
    close_streams(streams)
    await asyncio.sleep(5)
    gaps = sorted(b - a for arrivals in within for a, b in pairwise(arrivals))
    delivered = sum(map(len, within)) / (ended - began)
    return {
        "streams": count,
        "tokens_per_second_of_each": rate,
        "seconds": round(ended - began, 1),
        "held_to_the_end": len(held),
        "tokens_per_second": {"asked": count * rate, "delivered": round(delivered, 1)},
        "inter_token_gap_ms": {f"p{each:g}": round(1e3 * percentile(gaps, each), 1) for each in (50, 99, 99.9)},
        "resident_mb": {"idle": round(idle, 1), "most": round(resident, 1), "after": round(stats.resident, 1)},
        "resident_kb_of_each": round((resident - idle) * 1024 / count, 1),
        "core_of_its_own_used": round(spent / (ended - began), 3),
        "processor_us_of_a_token": round(1e6 * spent / (delivered * (ended - began)), 1),
        "loop_lag_at_most_ms": {f"p{each}": 1e3 * upper_bound(lags, later, each) for each in (50, 90, 99)},
        "load_average_before": round(busy, 2),
        "redis_calls_per_second": round(calls / (ended - began), 2),
    }


async def open_streams(stats: WorkerStats, count: int, tokens: int) -> list[Stream]:
    """Open streams and wait for the first token of each. Raise RuntimeError if one was rejected."""
    body = {"model": "ours", "messages": MESSAGES, "max_tokens": tokens, "temperature": 0, "stream": True}
    content = json.dumps(body)
    payload = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {stats.worker.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n{content}"
    ).encode()
    loop = asyncio.get_running_loop()
    streams = []
    for _ in range(count):
        _, stream = await loop.create_connection(lambda: Stream(payload), "127.0.0.1", stats.worker.port)
        streams.append(stream)
        await asyncio.sleep(1 / OPENED_PER_SECOND)
    for stream in streams:
        await stream.started.wait()
    if errors := [stream.error for stream in streams if stream.error]:
        raise RuntimeError(f"{len(errors)} streams were rejected: {errors[0]}")
    return streams


def close_streams(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.transport.abort()


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values."""
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)]


def upper_bound(before: dict[float, float], after: dict[float, float], percent: float) -> float:
    """Return the upper bound of the bucket that holds the percentile of the samples between two scrapes."""
    gained = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    return next(bound for bound, count in gained.items() if count >= gained[math.inf] * percent / 100)


def show(figures: dict[str, Any]) -> None:
    table = Table("metric", "value")
    for name, value in figures.items():
        cell = ", ".join(f"{key} {each:g}" for key, each in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name.replace("_", " "), cell)
    console.print(table)


if __name__ == "__main__":
    main()
