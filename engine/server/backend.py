"""The seam between the service and what computes: each backend serves the same requests over the same sessions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loragate.engine.adapters.files import AdapterFiles, AdapterPeer
from loragate.engine.export.exporter import Exporter
from loragate.engine.scheduling.overload import QueueLoad
from loragate.engine.sequence.output import Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Links:
    """What a backend may call. `emit` and `on_crash` may be called from any thread, `peers` on the event loop."""

    peers: Callable[[AdapterKey], Iterable[AdapterPeer]]  # the sessions that may be asked for an adapter's bytes
    emit: Callable[[list[Output]], None]
    on_crash: Callable[[], None]  # ends the process


class Backend(Protocol):
    """Computes completions. Everything is called on the event loop, and nothing but `stop` waits.

    Each completion ends with one output that has a `finish`, also where it fails or is aborted.
    """

    @property
    def manifest(self) -> pb.Manifest: ...

    @property
    def files(self) -> AdapterFiles[Any]: ...

    @property
    def exporter(self) -> Exporter | None:
        """Exports merged models; None where the backend cannot."""
        ...

    def start(self) -> None: ...

    async def stop(self) -> None:
        """End the computation. Running requests get no further output."""
        ...

    def submit(self, request: Request) -> None: ...

    def abort(self, session_id: int, request_id: int | None = None, index: int | None = None) -> None:
        """End a request of a session, or all of them; with `index` only that completion."""
        ...

    def pin(self, keys: tuple[AdapterKey, ...]) -> None:
        """Keep these adapters on the device, in place of those pinned before."""
        ...

    def preload(self, keys: tuple[AdapterKey, ...]) -> None:
        """Read these adapters into memory if there is little else to read."""
        ...

    def retire(self, keys: tuple[AdapterKey, ...]) -> None:
        """Release these adapters on every tier, each as soon as it is unused."""
        ...

    def load(self) -> QueueLoad: ...

    def served(self) -> Mapping[str, float]:
        """Return the units of tenants that were served since the last call."""
        ...

    def stats(self, request: pb.StatsRequest) -> pb.StatsResponse: ...

    def inventory(self) -> pb.InventoryResponse: ...

    def trace(self, last_steps: int | None) -> bytes:
        """Return the last steps as a timeline. May be called from any thread."""
        ...


BuildBackend = Callable[[Links], Backend]
