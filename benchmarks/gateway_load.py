"""What asks a server over HTTP/1.1 and measures, in a process of its own: `load` starts it and returns its figures.

A response is read as far as it must be: its status and its length. Both kinds of load keep connections open.

    closed   so many connections, each asking again as soon as it is answered: the most that a server answers
    open     requests at times drawn beforehand (Poisson), whether earlier ones were answered or not; each one's time
             runs from when it was due, so that a server that falls behind cannot hide it
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections import deque
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
    arguments = {"request": vars(request), "connections": connections, "seconds": seconds, "rate": rate}
    done = subprocess.run([sys.executable, __file__], input=json.dumps(arguments), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


class _Connection(asyncio.Protocol):
    """One request at a time. The answer's bytes are counted, not kept."""

    def __init__(self, payload: bytes) -> None:
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
        self._fail("the server hung up")

    def _fail(self, words: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(RuntimeError(words))


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(b"content-length:") + len(b"content-length:")
    return int(lowered[start : lowered.find(b"\r\n", start) if b"\r\n" in lowered[start:] else None])


async def _closed(lines: list[_Connection], seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def ask_for_ever(line: _Connection) -> None:
        while (began := time.perf_counter()) < end:
            await line.ask()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*map(ask_for_ever, lines))
    return took


async def _open(lines: list[_Connection], seconds: float, rate: float) -> list[float]:
    """A request that finds all connections busy waits for one, and its time runs."""
    draw = random.Random(1)
    free, waiting = deque(lines), deque[float]()
    took: list[float] = []
    running: set[asyncio.Task[None]] = set()

    async def answer(line: _Connection, due: float) -> None:
        while True:
            await line.ask()
            took.append(time.perf_counter() - due)
            if not waiting:
                free.append(line)
                return
            due = waiting.popleft()

    due = time.perf_counter()
    end = due + seconds
    while (due := due + draw.expovariate(rate)) < end:
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        if not free:
            waiting.append(due)
            continue
        task = asyncio.create_task(answer(free.popleft(), due))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return took


def _payload(request: Request) -> bytes:
    body = json.dumps(request.body).encode()
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"POST {request.path} HTTP/1.1", *(f"{k}: {v}" for k, v in (headers | request.headers).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _run(request: Request, connections: int, seconds: float, rate: float | None) -> dict[str, float]:
    loop, payload = asyncio.get_running_loop(), _payload(request)
    lines = []
    for _ in range(connections):
        _, line = await loop.create_connection(lambda: _Connection(payload), "127.0.0.1", request.port)
        lines.append(line)
    began = time.perf_counter()
    took = await (_closed(lines, seconds) if rate is None else _open(lines, seconds, rate))
    elapsed = time.perf_counter() - began
    cuts = statistics.quantiles(took, n=1000, method="inclusive")
    return {"per_second": len(took) / elapsed, "p50_ms": 1e3 * cuts[499], "p99_ms": 1e3 * cuts[989]}


if __name__ == "__main__":
    given = json.load(sys.stdin)
    given["request"] = Request(**given["request"])
    print(json.dumps(uvloop.run(_run(**given))))
