"""What asks a server over HTTP/1.1 and measures, in a process of its own: `load` starts it and returns its figures.

A response is read as far as it must be: its status and its length. Both kinds of load keep connections open.

    closed   so many connections, each asking again as soon as it is answered: the most that a server answers
    open     requests at times drawn beforehand (Poisson), whether earlier ones were answered or not; each one's time
             runs from when it was due, so that a server that falls behind cannot hide it
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, cast

import uvloop


@dataclass(frozen=True)
class Request:
    """One request, sent again and again."""

    port: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def load(request: Request, *, connections: int, seconds: float, rate: float | None = None) -> dict[str, float]:
    """Closed, or open at `rate` requests a second. Raises RuntimeError where a response is no 200."""
    cores = sorted(os.sched_getaffinity(0))[1:]  # the first is the server's
    arguments = {"request": vars(request), "connections": connections, "seconds": seconds, "rate": rate, "cores": cores}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gateway.load"], input=json.dumps(arguments), capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


class _Connection(asyncio.Protocol):
    """One request at a time. The answer's bytes are counted, not kept."""

    def __init__(self, payload: bytes) -> None:
        self.open = True
        self._payload = payload
        self._transport: asyncio.Transport
        self._head = b""
        self._missing = 0
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self) -> "asyncio.Future[None]":
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(self._payload)
        return self._answered

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            head, blank, body = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._head = b""
            if head[9:12] != b"200":
                self._fail(f"{head[9:12].decode()}: {body[:300].decode(errors='replace')}")
                return
            self._missing = _content_length(head)
            data = body
        self._missing -= len(data)
        if not self._missing and self._answered is not None:
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._fail("the server hung up")

    def _fail(self, words: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(RuntimeError(words))


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(b"content-length:") + len(b"content-length:")
    return int(lowered[start : lowered.find(b"\r\n", start) if b"\r\n" in lowered[start:] else None])


class _Lines:
    """Connections, kept open; the one used last is used first. What the server closes meanwhile is replaced."""

    def __init__(self, request: Request, most: int) -> None:
        self._port = request.port
        self._payload = _payload(request)
        self._free: list[_Connection] = []
        self._places = asyncio.Semaphore(most)

    async def ask(self) -> None:
        async with self._places:
            line = await self._line()
            await line.ask()
            self._free.append(line)

    async def _line(self) -> _Connection:
        while self._free:
            line = self._free.pop()
            if line.open:
                return line
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(lambda: _Connection(self._payload), "127.0.0.1", self._port)
        return line


async def _closed(lines: _Lines, connections: int, seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def ask_for_ever() -> None:
        while (began := time.perf_counter()) < end:
            await lines.ask()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(ask_for_ever() for _ in range(connections)))
    return took


async def _open(lines: _Lines, seconds: float, rate: float) -> list[float]:
    """A request that finds all connections busy waits for one, and its time runs."""
    draw = random.Random(1)
    took: list[float] = []

    async def ask(due: float) -> None:
        await lines.ask()
        took.append(time.perf_counter() - due)

    due = time.perf_counter()
    end = due + seconds
    async with asyncio.TaskGroup() as running:
        while (due := due + draw.expovariate(rate)) < end:
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            running.create_task(ask(due))
    return took


def _payload(request: Request) -> bytes:
    body = json.dumps(request.body).encode()
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"POST {request.path} HTTP/1.1", *(f"{k}: {v}" for k, v in (headers | request.headers).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _run(request: Request, connections: int, seconds: float, rate: float | None) -> dict[str, float]:
    lines = _Lines(request, connections)
    began = time.perf_counter()
    took = await (_closed(lines, connections, seconds) if rate is None else _open(lines, seconds, rate))
    elapsed = time.perf_counter() - began
    cuts = statistics.quantiles(took, n=1000, method="inclusive")
    figures = {"p50_ms": 1e3 * cuts[499], "p99_ms": 1e3 * cuts[989]}
    return {"seconds": elapsed, "per_second": len(took) / elapsed, **figures}


if __name__ == "__main__":
    given = json.load(sys.stdin)
    given["request"] = Request(**given["request"])
    if cores := given.pop("cores"):
        os.sched_setaffinity(0, cores)
    print(json.dumps(uvloop.run(_run(**given))))
