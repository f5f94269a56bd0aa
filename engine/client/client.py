"""What the other parts know of an engine, whether it runs in another process or is simulated."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from loragate.engine.client.request import RequestObserver
from loragate.v1 import engine_pb2 as pb

CALL_SECONDS = 10.0  # after which a call fails, unless the caller chooses


class Engine(Protocol):
    """Runs requests: one engine's client, a fleet, or a wrapper that traces it."""

    def generate(
        self, submit: pb.Submit, observer: RequestObserver | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[pb.Delta]]:
        """Run a request; leaving the block before the end aborts it in the engine.

        Raise EngineUnavailable, and EngineRequestError from the iterator.
        """
        ...


class EngineClient(Engine, Protocol):
    """The client of one engine. It connects again by itself when the connection is lost."""

    async def start(self) -> None:
        """Start connecting in the background, and return at once."""
        ...

    async def close(self) -> None:
        """End the session, which aborts its running requests."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the session is up."""
        ...

    @property
    def load(self) -> pb.Load | None:
        """The load that the engine reported last; None while no request waits."""
        ...

    @property
    def served(self) -> Mapping[str, float]:
        """The units of service that the engine reported for each tenant, since this client began. They only grow."""
        ...

    async def describe(self) -> pb.Manifest:
        """Return the manifest of the loaded base model. Raise EngineUnavailable."""
        ...

    async def stats(
        self, request: pb.StatsRequest | None = None, *, timeout_seconds: float = CALL_SECONDS
    ) -> pb.StatsResponse:
        """Return counters and gauges as of the last step. Raise EngineUnavailable, at the latest after the timeout."""
        ...

    async def inventory(self, *, timeout_seconds: float = CALL_SECONDS) -> pb.InventoryResponse:
        """Return the adapters that the engine holds, by tier. Raise EngineUnavailable."""
        ...

    async def trace(self, last_steps: int = 0) -> bytes:
        """Return the last steps, or all that are recorded, in Chrome's trace-event format. Raise EngineUnavailable."""
        ...

    def export_merged(
        self, adapter: pb.AdapterRef, base_digest: str, *, size_only: bool = False
    ) -> AsyncGenerator[pb.ExportPart]:
        """Yield the parts of an export, or only the first, which has the size. Closing the iterator ends it in the
        engine.

        Raise EngineUnavailable; EngineRequestError where the adapter cannot be merged or read, or another export runs.
        """
        ...

    def pin(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Keep these adapters on the device, in place of those given before; also after a reconnect."""
        ...

    def prefetch(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Fetch these adapters to the engine's disk, in place of those given before; also after a reconnect."""
        ...

    def preload(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Have the engine read these adapters into memory, from this process, before they are requested. Lost while
        not connected."""
        ...

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Report deleted adapters: the engine releases each one once it is unused. Lost while not connected."""
        ...
