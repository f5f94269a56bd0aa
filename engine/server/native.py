"""Our own engine as a backend: the step loop on a thread of its own, and adapters that are read beside it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loragate.engine.adapters.files import AdapterFiles, AdapterUnavailable
from loragate.engine.adapters.weights.load import load_adapter
from loragate.engine.config import EngineConfig
from loragate.engine.export.exporter import Exporter
from loragate.engine.layers.patch import HostAdapter
from loragate.engine.loop.commands import Abort, AdapterFailed, AdapterRead, Pin, Preload, Retire, Submit
from loragate.engine.loop.engine_core import EngineCore
from loragate.engine.metrics.trace_events import trace_json
from loragate.engine.model.checkpoint import saved_quantization
from loragate.engine.scheduling.overload import QueueLoad
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.server.backend import Links
from loragate.engine.server.stats import MAX_CACHED, build_inventory, build_stats
from loragate.engine.startup.build import LoadedModel, build_core
from loragate.peft_format.read import AdapterReading
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)


class NativeBackend:
    """Connects the service to the step loop."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, links: Links) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._loaded = loaded
        self._reads: set[asyncio.Task[None]] = set()
        self.files: AdapterFiles[HostAdapter] = AdapterFiles(
            config.cache_dir / "adapters", loaded.layout, self._prepare, links.peers, config.adapter_disk_bytes
        )
        quantized = "The base model is quantized, so nothing can be merged into its weights exactly."
        problem = quantized if loaded.base.is_quantized or saved_quantization(loaded.directory) else None
        self.exporter = Exporter(loaded.directory, loaded.layout, self.files, problem, self._is_busy)
        self.core: EngineCore = build_core(
            loaded,
            config,
            request_read=lambda key: self._call(self._start_read, key),
            emit=links.emit,
            on_crash=links.on_crash,
            on_retired=lambda key: self._call(self.files.discard, key),
        )

    @property
    def manifest(self) -> pb.Manifest:
        return self._loaded.manifest

    def start(self) -> None:
        self.core.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self.core.stop)

    def submit(self, request: Request) -> None:
        self.core.post(Submit(request))

    def abort(self, session_id: int, request_id: int | None = None, index: int | None = None) -> None:
        self.core.post(Abort(session_id, request_id, index))

    def pin(self, keys: tuple[AdapterKey, ...]) -> None:
        self.core.post(Pin(keys))

    def preload(self, keys: tuple[AdapterKey, ...]) -> None:
        self.core.post(Preload(keys))

    def retire(self, keys: tuple[AdapterKey, ...]) -> None:
        self.core.post(Retire(keys))

    def load(self) -> QueueLoad:
        return self.core.scheduler.load()

    def served(self) -> Mapping[str, float]:
        return self.core.scheduler.served()

    def stats(self, request: pb.StatsRequest) -> pb.StatsResponse:
        return build_stats(self.core, self.files.tier, request, self.files.recent(MAX_CACHED))

    def inventory(self) -> pb.InventoryResponse:
        return build_inventory(self.core.adapters, self.files.keys())

    def trace(self, last_steps: int | None) -> bytes:
        return trace_json(self.core.timeline.steps(last_steps))

    def _is_busy(self) -> bool:
        return bool(self.core.scheduler.running or self.core.scheduler.waiting)

    def _prepare(self, path: Path, reading: AdapterReading) -> HostAdapter:
        return load_adapter(path, reading.plan, self._loaded.base, self._loaded.layout)

    def _start_read(self, key: AdapterKey) -> None:
        task = asyncio.create_task(self._read_adapter(key))
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    async def _read_adapter(self, key: AdapterKey) -> None:
        try:
            self.core.post(AdapterRead(key, await self.files.load(key)))
        except AdapterUnavailable as error:
            self.core.post(AdapterFailed(key, str(error)))
        except Exception as error:
            log.exception("loading adapter %s failed", key.digest)
            self.core.post(AdapterFailed(key, f"the engine failed to load it ({type(error).__name__})"))

    def _call(self, function: Callable[..., Any], argument: object) -> None:
        """Call a function on the event loop from the step thread; do nothing once the loop is closed."""
        try:
            self._event_loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            log.debug("the event loop is closed")
