"""Batching of a client's frames into few messages: each message costs both sides more than its content."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from loragate.v1 import engine_pb2 as pb

_MAX_BATCH = 64


class FrameQueue:
    """A queue of frames that are sent in order."""

    def __init__(self) -> None:
        self._waiting: deque[pb.ClientFrame] = deque()
        self._news = asyncio.Event()

    def put(self, frame: pb.ClientFrame) -> None:
        self._waiting.append(frame)
        self._news.set()

    async def next(self) -> pb.ClientFrame:
        """Return the first frame; `more` holds those that were added while the previous one was sent.

        An adapter's part is sent alone, because it has the maximum size of a message.
        """
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        first = self._waiting.popleft()
        while self._waiting and len(first.more) < _MAX_BATCH - 1:
            if _is_large(first) or _is_large(self._waiting[0]):
                break
            first.more.append(self._waiting.popleft())
        return first


async def unbatch(frames: AsyncIterator[pb.ClientFrame]) -> AsyncIterator[pb.ClientFrame]:
    """Yield all frames that a client put into its outbox."""
    async for frame in frames:
        yield frame
        for later in frame.more:
            yield later


def _is_large(frame: pb.ClientFrame) -> bool:
    return frame.HasField("adapter_part")
