"""Streams of bytes that have begun: what cannot be read at all is told before an answer begins."""

from collections.abc import AsyncIterator


async def started(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same, its first one read."""
    first = await anext(chunks, b"")

    async def rest() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return rest()
