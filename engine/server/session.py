"""One client's stream, seen from the engine: what it is owed, and the adapter bytes it is asked for."""

import asyncio
from collections.abc import AsyncIterator

from loragate.engine.adapters.files import SessionEnded
from loragate.engine.sequence.request import AdapterKey
from loragate.v1 import engine_pb2 as pb

HEARTBEAT_SECONDS = 0.5
_PARTS_AHEAD = 8  # a slow disk holds the client's next part back, not in our memory


class Session:
    """Lives on the event loop. The step loop never waits for it: deltas pile up here, at most a token a step."""

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self._outbox: asyncio.Queue[pb.EngineFrame] = asyncio.Queue()
        self._transfers: dict[AdapterKey, asyncio.Queue[pb.AdapterPart | None]] = {}

    def send(self, deltas: list[pb.Delta]) -> None:
        self._outbox.put_nowait(pb.EngineFrame(step=pb.StepOutput(deltas=deltas)))

    def tell(self, load: pb.Load) -> None:
        self._outbox.put_nowait(pb.EngineFrame(load=load))

    async def frames(self) -> AsyncIterator[pb.EngineFrame]:
        """What goes down the stream, a heartbeat whenever nothing else did for half a second."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    frame = await self._outbox.get()
            except TimeoutError:
                frame = pb.EngineFrame(heartbeat=pb.Heartbeat())
            yield frame

    async def receive(self, part: pb.AdapterPart) -> None:
        """A piece of an adapter arrived; pieces that nobody waits for any more are dropped."""
        transfer = self._transfers.get(AdapterKey(part.adapter.tenant_id, part.adapter.digest))
        if transfer is not None:
            await transfer.put(part)

    async def fetch(self, key: AdapterKey) -> AsyncIterator[pb.AdapterPart]:
        """Ask the client for an adapter's bytes. Raises SessionEnded."""
        transfer: asyncio.Queue[pb.AdapterPart | None] = asyncio.Queue(_PARTS_AHEAD)
        self._transfers[key] = transfer
        wanted = pb.AdapterRef(tenant_id=key.tenant_id, digest=key.digest)
        self._outbox.put_nowait(pb.EngineFrame(adapter_wanted=wanted))
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
        """The stream is over: whoever waits for bytes from it hears so."""
        for transfer in list(self._transfers.values()):
            await transfer.put(None)
