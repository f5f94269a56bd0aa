"""What a client has to say, in as few messages as it can: each costs both sides more than what is in it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from loragate.v1 import engine_pb2 as pb

_MOST_TOGETHER = 64


class Outbox:
    """Frames in the order in which they were put here."""

    def __init__(self) -> None:
        self._waiting: deque[pb.ClientFrame] = deque()
        self._news = asyncio.Event()

    def put(self, frame: pb.ClientFrame) -> None:
        self._waiting.append(frame)
        self._news.set()

    async def next(self) -> pb.ClientFrame:
        """The first one; `more` holds those that came up while the last one was sent. An adapter's part goes alone: it
        is as large as a message should be."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        first = self._waiting.popleft()
        while self._waiting and len(first.more) < _MOST_TOGETHER - 1:
            if _is_large(first) or _is_large(self._waiting[0]):
                break
            first.more.append(self._waiting.popleft())
        return first


async def each_of(frames: AsyncIterator[pb.ClientFrame]) -> AsyncIterator[pb.ClientFrame]:
    """The frames that a client put into its outbox."""
    async for frame in frames:
        yield frame
        for later in frame.more:
            yield later


def _is_large(frame: pb.ClientFrame) -> bool:
    return frame.HasField("adapter_part")
