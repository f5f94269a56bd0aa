"""An HTTP/1.1 load generator in its own process: `load` starts it and returns its figures.

Of a response, only the status and the length are parsed. Both kinds of load keep connections open.

    closed   each connection sends its next request as soon as it has a response: a server's maximum throughput
    open     requests start at Poisson-distributed times, independent of earlier responses; latency counts from the
             scheduled start, so that it includes any queueing of a server that falls behind
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
    """The request that is sent repeatedly."""

    port: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def load(request: Request, *, connections: int, seconds: float, rate: float | None = None) -> dict[str, float]:
    """Run a closed load, or an open one at `rate` requests per second.

    Raise RuntimeError if a response has another status than 200.
    """
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
    """A connection with one request at a time; it counts the response's bytes and discards them."""

    def __init__(self, payload: bytes) -> None:
        self.open = True
        self._payload = payload
        self._transport: asyncio.Transport
        self._head = b""
        self._remaining = 0
        self._response: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> "asyncio.Future[None]":
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(self._payload)
        return self._response

    def data_received(self, data: bytes) -> None:
        if not self._remaining:
            self._head += data
            head, blank, body = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._head = b""
            if head[9:12] != b"200":
                self._fail(f"{head[9:12].decode()}: {body[:300].decode(errors='replace')}")
                return
            self._remaining = _content_length(head)
            data = body
        self._remaining -= len(data)
        if not self._remaining and self._response is not None:
            self._response.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._fail("the server closed the connection")

    def _fail(self, message: str) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(RuntimeError(message))


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(b"content-length:") + len(b"content-length:")
    return int(lowered[start : lowered.find(b"\r\n", start) if b"\r\n" in lowered[start:] else None])


class _Pool:
    """A pool of open connections, last in, first out. Connections that the server closed are replaced."""

    def __init__(self, request: Request, max_connections: int) -> None:
        self._port = request.port
        self._payload = _payload(request)
        self._free: list[_Connection] = []
        self._permits = asyncio.Semaphore(max_connections)

    async def send(self) -> None:
        async with self._permits:
            connection = await self._connection()
            await connection.send()
            self._free.append(connection)

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(self._payload), "127.0.0.1", self._port)
        return connection


async def _closed(pool: _Pool, connections: int, seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def send_until_end() -> None:
        while (began := time.perf_counter()) < end:
            await pool.send()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(send_until_end() for _ in range(connections)))
    return took


async def _open(pool: _Pool, seconds: float, rate: float) -> list[float]:
    """Send requests at their times; waiting for a free connection counts as latency."""
    draw = random.Random(1)
    took: list[float] = []

    async def send(due: float) -> None:
        await pool.send()
        took.append(time.perf_counter() - due)

    due = time.perf_counter()
    end = due + seconds
    async with asyncio.TaskGroup() as running:
        while (due := due + draw.expovariate(rate)) < end:
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            running.create_task(send(due))
    return took


def _payload(request: Request) -> bytes:
    body = json.dumps(request.body).encode()
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"POST {request.path} HTTP/1.1", *(f"{k}: {v}" for k, v in (headers | request.headers).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _run(request: Request, connections: int, seconds: float, rate: float | None) -> dict[str, float]:
    pool = _Pool(request, connections)
    began = time.perf_counter()
    took = await (_closed(pool, connections, seconds) if rate is None else _open(pool, seconds, rate))
    elapsed = time.perf_counter() - began
    cuts = statistics.quantiles(took, n=1000, method="inclusive")
    figures = {"p50_ms": 1e3 * cuts[499], "p99_ms": 1e3 * cuts[989]}
    return {"seconds": elapsed, "per_second": len(took) / elapsed, **figures}


if __name__ == "__main__":
    arguments = json.load(sys.stdin)
    arguments["request"] = Request(**arguments["request"])
    if cores := arguments.pop("cores"):
        os.sched_setaffinity(0, cores)
    print(json.dumps(uvloop.run(_run(**arguments))))
