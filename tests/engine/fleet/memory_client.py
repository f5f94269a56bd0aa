"""An EngineClient without an engine: tests choose when it is connected and what it answers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.v1 import engine_pb2 as pb


class MemoryClient:
    """Answers each request with the tokens 0, 1, 2, …, one delta each, and waits before the token `pause_at`."""

    def __init__(self, base_digest: str = "sha256:base") -> None:
        self.ready = True
        self.load: pb.Load | None = None
        self.manifest = pb.Manifest(base_digest=base_digest, max_model_len=64, adapter_slots=4)
        self.pause_at: int | None = None
        self.paused = asyncio.Event()
        self.lost = asyncio.Event()
        self.closed = False
        self.submits: list[pb.Submit] = []
        self.pinned: list[pb.AdapterRef] = []
        self.prefetched: list[pb.AdapterRef] = []
        self.preloaded: list[pb.AdapterRef] = []
        self.held: list[pb.AdapterRef] = []
        self.served: dict[str, float] = {}

    async def start(self) -> None: ...

    async def close(self) -> None:
        self.closed = True

    def die(self) -> None:
        """Lose the connection, and every request with it."""
        self.ready = False
        self.lost.set()

    async def describe(self) -> pb.Manifest:
        return self.manifest

    async def stats(self, request: pb.StatsRequest | None = None, *, timeout_seconds: float = 10.0) -> pb.StatsResponse:
        return pb.StatsResponse()

    async def inventory(self, *, timeout_seconds: float = 10.0) -> pb.InventoryResponse:
        return pb.InventoryResponse(held=[pb.Held(adapter=each) for each in self.held])

    async def trace(self, last_steps: int = 0) -> bytes:
        return b"{}"

    async def export_merged(
        self, adapter: pb.AdapterRef, base_digest: str, *, size_only: bool = False
    ) -> AsyncGenerator[pb.ExportPart]:
        yield pb.ExportPart()

    def pin(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self.pinned = list(adapters)

    def prefetch(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self.prefetched = list(adapters)

    def preload(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self.preloaded += adapters

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None: ...

    @asynccontextmanager
    async def generate(
        self, submit: pb.Submit, observer: RequestObserver | None = None
    ) -> AsyncIterator[AsyncIterator[pb.Delta]]:
        if not self.ready:
            raise EngineUnavailable("the engine is not running")
        self.submits.append(submit)
        yield self._deltas(submit)

    async def _deltas(self, submit: pb.Submit) -> AsyncIterator[pb.Delta]:
        for position in range(submit.sampling.max_tokens):
            if position == self.pause_at:
                self.paused.set()
                await self.lost.wait()
            if self.lost.is_set():
                raise EngineUnavailable("the connection to the engine was lost while the request ran")
            yield pb.Delta(token_ids=[position])
