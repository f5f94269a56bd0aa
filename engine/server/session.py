"""One client's stream on the engine's side: its outputs, and the transfers of adapter bytes."""

import asyncio
from collections.abc import AsyncIterator

from loragate.engine.adapters.files import SessionEnded
from loragate.engine.sequence.request import AdapterKey
from loragate.v1 import engine_pb2 as pb

HEARTBEAT_SECONDS = 0.5
_PARTS_AHEAD = 8  # a slow disk delays the client's next part, which is not buffered in memory


class Session:
    """A client's session on the event loop.

    The step loop never waits for it: deltas accumulate here, at most one token per step.
    """

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self._send_queue: asyncio.Queue[pb.EngineFrame] = asyncio.Queue()
        self._transfers: dict[AdapterKey, asyncio.Queue[pb.AdapterPart | None]] = {}

    def send(self, deltas: list[pb.Delta]) -> None:
        self._send_queue.put_nowait(pb.EngineFrame(step=pb.StepOutput(deltas=deltas)))

    def send_load(self, load: pb.Load) -> None:
        self._send_queue.put_nowait(pb.EngineFrame(load=load))

    async def frames(self) -> AsyncIterator[pb.EngineFrame]:
        """Yield the frames for the stream, with a heartbeat after every half second without one."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    frame = await self._send_queue.get()
            except TimeoutError:
                frame = pb.EngineFrame(heartbeat=pb.Heartbeat())
            yield frame

    async def receive(self, part: pb.AdapterPart) -> None:
        """Accept a part of an adapter; parts that are no longer awaited are dropped."""
        transfer = self._transfers.get(AdapterKey(part.adapter.tenant_id, part.adapter.digest))
        if transfer is not None:
            await transfer.put(part)

    async def fetch(self, key: AdapterKey) -> AsyncIterator[pb.AdapterPart]:
        """Ask the client for an adapter's bytes. Raise SessionEnded."""
        transfer: asyncio.Queue[pb.AdapterPart | None] = asyncio.Queue(_PARTS_AHEAD)
        self._transfers[key] = transfer
        wanted = pb.AdapterRef(tenant_id=key.tenant_id, digest=key.digest)
        self._send_queue.put_nowait(pb.EngineFrame(adapter_wanted=wanted))
        try:
            while True:
                part = await transfer.get()
                if part is None:
                    raise SessionEnded
                yield part
                if part.last:
                    return
        finally:
            del self._transfers[key]

    async def end(self) -> None:
        """End the session, and its transfers with it."""
        for transfer in list(self._transfers.values()):
            await transfer.put(None)
