"""Reading and parsing of request bodies, within limits of size and time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from loragate.gateway.errors import UnsupportedMediaType
from loragate.gateway.http.body_limits import BodyCounter, Pace

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
