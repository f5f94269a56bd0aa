"""Merging of several streams, in the order in which their items arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    """A stream has ended, perhaps with an error."""

    error: Exception | None = None


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of all streams until all have ended. The first error ends all; closing this closes them all."""
    items: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=1)
    pumps = [asyncio.create_task(_pump(stream, items)) for stream in streams]
    running = len(pumps)
    try:
        while running:
            item = await items.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                running -= 1
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(stream: AsyncGenerator[T, None], items: "asyncio.Queue[T | _End]") -> None:
    try:
        async with aclosing(stream):
            async for item in stream:
                await items.put(item)
    except Exception as error:
        await items.put(_End(error))
    else:
        await items.put(_End())
