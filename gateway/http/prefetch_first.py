"""Prefetching of a stream's first chunk, so that a stream that cannot be read fails before the response begins."""

from collections.abc import AsyncIterator


async def prefetch_first(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first chunk; return an iterator over all chunks."""
    first = await anext(chunks, b"")

    async def rest() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return rest()
