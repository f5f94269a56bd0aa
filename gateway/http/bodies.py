"""Reading and parsing of request bodies, within limits of size and time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from loragate.gateway.errors import PayloadTooLarge, RequestTimeout, UnsupportedMediaType

MIN_SEND_RATE = 500  # bytes per second, for small bodies; the value of Apache's mod_reqtimeout


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly a body may arrive: with pauses of at most `stall_seconds`, and at `rate` bytes per second or more,
    averaged over `window` seconds. A client that was faster may be slower for the time gained, up to the window."""

    stall_seconds: float
    rate: float = MIN_SEND_RATE
    window: float | None = None  # None: as long as a stall

    @property
    def credit(self) -> float:
        """The window in seconds."""
        return self.stall_seconds if self.window is None else self.window


T = TypeVar("T")

_INLINE_BYTES = 64 << 10  # about a millisecond
_PARSING_THREADS = ThreadPoolExecutor(2, thread_name_prefix="large-bodies")


async def chunks(request: Request, announced: int, limit: int, pace: Pace) -> AsyncIterator[bytes]:
    """Yield the body, of the `announced` size, in pieces. Raise PayloadTooLarge beyond `limit` bytes, RequestTimeout if
    it is too slow."""
    counter = BodyCounter(limit, pace)
    counter.check_size(announced)
    more = True
    while more:
        try:
            async with asyncio.timeout(counter.timeout):
                message = await request.receive()
        except TimeoutError:
            raise counter.too_slow() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        counter.add(len(chunk))
        yield chunk


def announced_size(request: Request) -> int:
    """Return the body's size according to `content-length`; 0 without one."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0


def check_encoding(request: Request) -> None:
    """Raise UnsupportedMediaType for a compressed body, whose size would be known only after decompressing it."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Compressed bodies are not accepted.", param="content-encoding")


async def parse_body(parse: Callable[[bytes], T], raw: bytes) -> T:
    """Return what `parse` makes of the body: small bodies at once, large ones off the event loop and a few at a time.

    A parsed body takes up to thirty times the memory of the raw one. The threads are separate from those in which
    prompts are tokenized, so that waiting for large bodies does not delay other requests.
    """
    if len(raw) <= _INLINE_BYTES:
        return parse(raw)
    return await asyncio.get_running_loop().run_in_executor(_PARSING_THREADS, parse, raw)


class BodyCounter:
    """Counts the bytes of one body."""

    def __init__(self, limit: int, pace: Pace) -> None:
        self._limit = limit
        self._pace = pace
        self._total = 0
        self._due = time.monotonic() + pace.credit

    @property
    def timeout(self) -> float:
        """Seconds until the next piece has to arrive."""
        return max(0.0, min(self._pace.stall_seconds, self._due - time.monotonic()))

    def add(self, size: int) -> None:
        """Count a piece of the body. Raise PayloadTooLarge."""
        self._total += size
        self._due = min(self._due + size / self._pace.rate, time.monotonic() + self._pace.credit)
        self.check_size(self._total)

    def check_size(self, size: int) -> None:
        """Raise PayloadTooLarge if a body of `size` bytes exceeds the limit."""
        if size > self._limit:
            raise PayloadTooLarge(f"The body exceeds this route's limit of {self._limit} bytes.")

    def too_slow(self) -> RequestTimeout:
        """Return the error for a piece that has not arrived in time."""
        return RequestTimeout("The body arrived too slowly.")
