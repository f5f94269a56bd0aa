"""Reading and parsing of request bodies, within limits of size, time and memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from loragate.gateway.errors import (
    OVERLOADED,
    PayloadTooLarge,
    RequestTimeout,
    TooManyRequests,
    Unavailable,
    UnsupportedMediaType,
)
from loragate.gateway.resilience.tenant_threads import TenantThreads

MIN_SEND_RATE = 500  # bytes per second, for small bodies; the value of Apache's mod_reqtimeout


@dataclass(frozen=True, slots=True)
class Pace:
    """The slowest arrival that is accepted of a body: with pauses of at most `stall_seconds`, and at `rate` bytes
    per second or more, averaged over `window` seconds. A client that was faster may be slower for the
    time gained, up to the window."""

    stall_seconds: float
    rate: float = MIN_SEND_RATE
    window: float | None = None  # None: as long as a stall

    @property
    def credit(self) -> float:
        """The window in seconds."""
        return self.stall_seconds if self.window is None else self.window


T = TypeVar("T")
B = TypeVar("B", bytes, bytearray)

INLINE_BYTES = 64 << 10  # about a millisecond
_SMALL_SHARE = 4
ANONYMOUS = ""  # in place of a tenant's id, for calls without a key


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


async def parse_body(threads: TenantThreads, tenant_id: str | None, parse: Callable[[B], T], raw: B) -> T:
    """Return what `parse` makes of the body: small bodies at once, large ones off the event loop and a few at a time.

    A parsed body takes up to thirty times the memory of the raw one. The threads are separate from those in which
    prompts are tokenized and files are read, so that waiting for large bodies does not delay other requests.
    """
    if len(raw) <= INLINE_BYTES:
        return parse(raw)
    return await threads.run(tenant_id, lambda: parse(raw))


def check_size(size: int, limit: int) -> None:
    """Raise PayloadTooLarge if a body of `size` bytes exceeds `limit`."""
    if size > limit:
        raise PayloadTooLarge(f"The body exceeds this route's limit of {limit} bytes.")


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
        check_size(size, self._limit)

    def too_slow(self) -> RequestTimeout:
        """Return the error for a piece that has not arrived in time."""
        return RequestTimeout("The body arrived too slowly.")


class BodyBudget:
    """The memory that bodies take in this process from before they arrive until they are parsed.

    A tenant may use as much of it as it leaves free for others: alone it has half. For small bodies it may use four
    times what it leaves free, so that chats find room beside the large bodies of the same tenant and of any others.
    """

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._held: dict[str | None, int] = {}

    def reserve(self, tenant_id: str | None, size: int) -> "ReservedBytes":
        """Return a block for which the `size` bytes of a body are held. None stands for the operator. Raise
        TooManyRequests if the tenant's other bodies are in the way, Unavailable if those of other tenants are."""
        reserved = ReservedBytes(self, tenant_id)
        reserved.extend_to(size)
        return reserved

    def take(self, tenant_id: str | None, size: int, body_size: int) -> None:
        """Take bytes for a body of `body_size`. Raise as `reserve` does."""
        held = self._held.get(tenant_id, 0)
        if held + size > (self._free - size) * (_SMALL_SHARE if body_size <= INLINE_BYTES else 1):
            raise _no_room(held, body_size)
        self._free -= size
        self._held[tenant_id] = held + size

    def give_back(self, tenant_id: str | None, size: int) -> None:
        """Give back bytes that were taken."""
        self._free += size
        self._held[tenant_id] -= size
        if not self._held[tenant_id]:
            del self._held[tenant_id]


class ReservedBytes:
    """The bytes that are held for one body, until the end of the block."""

    def __init__(self, budget: BodyBudget, tenant_id: str | None) -> None:
        self._budget = budget
        self._tenant_id = tenant_id
        self._size = 0

    def __enter__(self) -> "ReservedBytes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shrink_to(0)

    def extend_to(self, size: int) -> None:
        """Hold at least `size` bytes. Raise as `BodyBudget.reserve` does."""
        if size > self._size:
            self._budget.take(self._tenant_id, size - self._size, size)
            self._size = size

    def shrink_to(self, size: int) -> None:
        """Hold at most `size` bytes."""
        if size < self._size:
            self._budget.give_back(self._tenant_id, self._size - size)
            self._size = size


def _no_room(held: int, size: int) -> TooManyRequests | Unavailable:
    if held:
        return TooManyRequests(
            f"The bodies of this tenant's requests that are still arriving take {held} bytes; one of {size} more "
            "has to wait for some of them.",
            code="too_many_body_bytes",
        )
    return Unavailable("The server has no memory for this body at the moment.", code=OVERLOADED)
