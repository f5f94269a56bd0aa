"""The guest: a process that sends short streamed chats at a fixed rate, also while earlier ones have not ended.

It reads one window per line from stdin, and writes its latencies as a line of JSON. Latencies count from the scheduled
start, so that they include the time in which the server did not even accept the connection. Chats that fail, or have
not ended `PATIENCE_SECONDS` after the window, count with this time.
"""

import asyncio
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

MAX_TOKENS = 8
PATIENCE_SECONDS = 10.0
_PADDING = 100_000  # bytes of a body that the gateway parses in another thread
_TOKEN = 300  # every token, so that the text of each has the same length


@dataclass(frozen=True)
class Window:
    """Latencies in milliseconds, sorted, and the chats that failed or did not end."""

    first_token: list[float]
    total: list[float]
    failed: int
    unfinished: int
    processors: dict[str, float] = field(default_factory=dict)  # that each part of the server used meanwhile


class Guest:
    """The guest's process."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hostile.guest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def window(self, port: int, key: str, model: str, *, seconds: float, rate: float, large: bool) -> Window:
        """Send chats for so long; `large` ones have 100 kB beside the message."""
        chat = {"port": port, "key": key, "model": model, "seconds": seconds, "rate": rate, "large": large}
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(json.dumps(chat), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        assert line, "the guest's process ended"
        return Window(**json.loads(line))

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values."""
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)]


class _Chat(asyncio.Protocol):
    """One chat on a connection of its own. `first` and `last` are the times of its first token and its end."""

    def __init__(self, payload: bytes, due: float) -> None:
        self.due = due
        self.first: float | None = None
        self.last: float | None = None
        self.failure = ""
        self.over = asyncio.Event()
        self._payload = payload
        self._transport: Any = None
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._payload)

    def data_received(self, data: bytes) -> None:
        now = asyncio.get_running_loop().time()
        if data.startswith(b"HTTP/1.1 ") and data[9:12] != b"200":
            self._end(data.partition(b"\r\n")[0].decode(errors="replace"))
            return
        seen = self._tail + data
        if self.first is None and b'"content":"' in seen.replace(b'"content":""', b""):
            self.first = now
        if b"data: [DONE]" in seen:
            self.last = now if self.first is not None else None
            self._end("" if self.first is not None else "no token came")
        self._tail = seen[-20:]

    def connection_lost(self, error: Exception | None) -> None:
        self._end("the server closed the connection")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self, failure: str) -> None:
        if not self.over.is_set():
            self.failure = failure
            self.over.set()
            self.abort()


async def _run(port: int, key: str, model: str, seconds: float, rate: float, large: bool) -> Window:
    payload = _payload(key, model, large)
    loop = asyncio.get_running_loop()
    began = loop.time()
    chats: list[_Chat] = []
    async with asyncio.TaskGroup() as connecting:
        for number in range(int(seconds * rate)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            chat = _Chat(payload, due)
            chats.append(chat)
            connecting.create_task(_connect(chat, port))
        await asyncio.wait([asyncio.create_task(each.over.wait()) for each in chats], timeout=PATIENCE_SECONDS)
    unfinished = [each for each in chats if not each.over.is_set()]
    for each in unfinished:
        each.abort()
    for failure, count in Counter(each.failure for each in chats if each.failure).items():
        print(f"{count} chats failed: {failure}", file=sys.stderr)
    served = [each for each in chats if not each.failure]
    return Window(
        first_token=_milliseconds(each.first and each.first - each.due for each in chats),
        total=_milliseconds(each.last and each.last - each.due for each in chats),
        failed=len(chats) - len(served),
        unfinished=len(unfinished),
    )


def _milliseconds(latencies: Iterable[float | None]) -> list[float]:
    return sorted(1e3 * (PATIENCE_SECONDS if each is None else each) for each in latencies)


async def _connect(chat: _Chat, port: int) -> None:
    try:
        await asyncio.get_running_loop().create_connection(lambda: chat, "127.0.0.1", port)
    except OSError as error:
        chat.connection_lost(error)


def _payload(key: str, model: str, large: bool) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logit_bias": {str(_TOKEN): 100},
        "stream": True,
    }
    if large:
        body["metadata"] = {"note": "x" * _PADDING}
    content = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(vars(uvloop.run(_run(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
