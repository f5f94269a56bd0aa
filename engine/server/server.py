"""The engine process: a gRPC server on the event loop, in front of a backend."""

import asyncio
import itertools
import logging
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import grpc.aio

from loragate.engine.adapters.files import AdapterUnavailable
from loragate.engine.adapters.prefetch import Prefetch
from loragate.engine.client.channel_options import SERVER_OPTIONS
from loragate.engine.client.frames import unbatch
from loragate.engine.config import EngineConfig
from loragate.engine.export.exporter import ExporterBusy
from loragate.engine.export.merge import NotMergeable
from loragate.engine.model.errors import exit_if_rejected
from loragate.engine.runtime.interpreter import freeze_objects
from loragate.engine.sequence.output import Output
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.server import session as sessions
from loragate.engine.server.access import SecretRequired, check_access, listen
from loragate.engine.server.backend import BuildBackend, Links
from loragate.engine.server.conversions import delta_from, load_from, request_from
from loragate.kernels.cpu.openmp import compute_alone
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

_EXIT_DIED = 70
_LOAD_SECONDS = 0.25
_PRELOADED = 64  # adapters whose sessions are known


class EngineService(pb_grpc.EngineServiceServicer):
    """Connects sessions to the backend."""

    def __init__(self, build: BuildBackend) -> None:
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, sessions.Session] = {}
        self._pins: dict[int, tuple[AdapterKey, ...]] = {}
        self._preloaded: dict[AdapterKey, int] = {}  # the session that has each adapter at hand; the last ones
        self._ids = itertools.count(1)
        self.backend = build(
            Links(
                peers=self._peers,
                emit=lambda outputs: self._call(self._dispatch, outputs),
                on_crash=lambda: os._exit(_EXIT_DIED),
            )
        )
        self._prefetch = Prefetch(self.backend.files)

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.Manifest:
        return self.backend.manifest

    async def Stats(self, request: pb.StatsRequest, context: object) -> pb.StatsResponse:
        return self.backend.stats(request)

    async def Inventory(self, request: pb.InventoryRequest, context: object) -> pb.InventoryResponse:
        return self.backend.inventory()

    async def Trace(self, request: pb.TraceRequest, context: object) -> pb.TraceResponse:
        return pb.TraceResponse(json=await asyncio.to_thread(self.backend.trace, request.last_steps or None))

    async def ExportMerged(
        self, request: pb.ExportRequest, context: "grpc.aio.ServicerContext[pb.ExportRequest, pb.ExportPart]"
    ) -> None:
        exporter = self.backend.exporter
        if exporter is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this engine does not export merged models")
        if request.base_digest != self.backend.manifest.base_digest:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this engine serves another base model")
        (key,) = _keys([request.adapter])
        try:
            async with exporter.export(key) as export:
                await context.write(pb.ExportPart(size_bytes=export.size))
                if request.size_only:
                    return
                async for part in export.parts():
                    await context.write(pb.ExportPart(data=part))
        except NotMergeable as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except ExporterBusy as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except AdapterUnavailable as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    async def Session(
        self, request_iterator: AsyncIterator[pb.ClientFrame], context: object
    ) -> AsyncIterator[pb.EngineFrame]:
        session = sessions.Session(next(self._ids))
        self._sessions[session.id] = session
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            async for frame in session.frames():
                yield frame
        finally:
            reader.cancel()
            del self._sessions[session.id]
            self.backend.abort(session.id)
            self._pin(session.id, ())
            self._prefetch.discard(session.id)
            await session.end()

    async def run_load_loop(self) -> None:
        """Report the load to every session while requests wait or are served, and once when none waits any more."""
        reported = False
        while True:
            await asyncio.sleep(_LOAD_SECONDS)
            load = load_from(self.backend.load(), self.backend.served())
            if load.tenants or load.served or reported:
                for session in self._sessions.values():
                    session.send_load(load)
            reported = bool(load.tenants)

    async def _read(self, session: sessions.Session, frames: AsyncIterator[pb.ClientFrame]) -> None:
        async for frame in unbatch(frames):
            match frame.WhichOneof("kind"):
                case "submit":
                    self.backend.submit(request_from(frame.submit, session.id))
                case "abort":
                    index = frame.abort.index if frame.abort.HasField("index") else None
                    self.backend.abort(session.id, frame.abort.request_id, index)
                case "adapter_part":
                    await session.receive(frame.adapter_part)
                case "pins":
                    self._pin(session.id, _keys(frame.pins.adapters))
                case "prefetch":
                    self._prefetch.request(session.id, _keys(frame.prefetch.adapters))
                case "preload":
                    self._preload(session.id, _keys(frame.preload.adapters))
                case "retire":
                    self.backend.retire(_keys(frame.retire.adapters))

    def _preload(self, session_id: int, keys: tuple[AdapterKey, ...]) -> None:
        self._preloaded |= dict.fromkeys(keys, session_id)
        for key in list(self._preloaded)[:-_PRELOADED]:
            del self._preloaded[key]
        self.backend.preload(keys)

    def _peers(self, key: AdapterKey) -> list[sessions.Session]:
        """Return the sessions that may be asked for an adapter, first the one that has it at hand."""
        first = self._preloaded.get(key)
        return sorted(self._sessions.values(), key=lambda session: session.id != first)

    def _pin(self, session_id: int, keys: tuple[AdapterKey, ...]) -> None:
        """Set one session's pins; those of the others stay."""
        before = dict(self._pins)
        self._pins[session_id] = keys
        if not keys:
            del self._pins[session_id]
        if self._pins != before:
            self.backend.pin(tuple(key for pinned in self._pins.values() for key in pinned))

    def _dispatch(self, outputs: list[Output]) -> None:
        by_session: dict[int, list[pb.Delta]] = defaultdict(list)
        for output in outputs:
            by_session[output.request.session_id].append(delta_from(output))
        for session_id, deltas in by_session.items():
            session = self._sessions.get(session_id)
            if session is not None:
                session.send(deltas)

    def _call(self, function: Callable[..., Any], argument: object) -> None:
        """Call a function on the event loop from any thread; do nothing once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            log.debug("the event loop is closed")


def _keys(adapters: Iterable[pb.AdapterRef]) -> tuple[AdapterKey, ...]:
    return tuple(AdapterKey(adapter.tenant_id, adapter.digest) for adapter in adapters)


def run(config: EngineConfig) -> None:
    """Serve our own engine until SIGTERM or SIGINT. Exits with status 2 if the model is rejected, with the reason on
    stderr.

    Raise ValueError for a configuration that leaves the engine open to others.
    """
    from loragate.engine.server.native import NativeBackend
    from loragate.engine.startup.build import load

    check_access(config)
    with exit_if_rejected():
        loaded = load(config)
    freeze_objects()
    asyncio.run(serve(partial(NativeBackend, loaded, config), config))


async def serve(build: BuildBackend, config: EngineConfig) -> None:
    """Serve a backend on `config.listen` until a signal."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(initializer=compute_alone))
    server = grpc.aio.server(
        options=SERVER_OPTIONS, interceptors=[SecretRequired(config.secret, config.previous_secrets)]
    )
    service = EngineService(build)
    pb_grpc.add_EngineServiceServicer_to_server(service, server)
    listen(server, config)
    service.backend.start()
    await server.start()
    manifest = service.backend.manifest
    log.info("engine ready: %s on %s", manifest.model_id, manifest.device)
    load_task = asyncio.create_task(service.run_load_loop(), name="engine-load")
    await _until_signal()
    load_task.cancel()
    await server.stop(grace=None)
    await service.backend.stop()


async def _until_signal() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
