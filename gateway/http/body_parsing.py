"""Parsing what clients send: the small at once, the large off the event loop and few at a time.

Parsed, a body takes up to thirty times its own memory; and those who wait for one large body must not hold up the
threads in which others' prompts are tokenised.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_INLINE_BYTES = 64 << 10  # about a millisecond
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="large-bodies")


async def parsed(parse: Callable[[bytes], T], raw: bytes) -> T:
    """What `parse` makes of it."""
    if len(raw) <= _INLINE_BYTES:
        return parse(raw)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, parse, raw)
