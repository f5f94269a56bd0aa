"""One connection of the engine's client: the requests in it, the adapters that it sends, and its end after silence."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.engine.client.errors import EngineError
from loragate.engine.client.frames import FrameQueue
from loragate.engine.client.request import Request, RequestObserver
from loragate.engine.served_units import ServedTotals
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

PART_BYTES = 1 << 20
PARTS_IN_FLIGHT = 8
_TICK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class AdapterBytes:
    """An adapter's two files: the whole config, and the safetensors file as a stream."""

    config_json: bytes
    tensors: AsyncIterator[bytes]


class AdapterSource(Protocol):
    """A reader of adapter files. The engine asks it for adapters that it does not hold."""

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        """Open an adapter. Raise LookupError if it does not exist, OSError if it cannot be read."""
        ...


class Session:
    """One stream and the requests in it."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        source: AdapterSource,
        metadata: tuple[tuple[str, str], ...],
        heartbeat_timeout: float,
        served: ServedTotals,
    ) -> None:
        self._channel = channel
        self._served = served
        served.begin_session()
        self._source = source
        self._metadata = metadata
        self._heartbeat_timeout = heartbeat_timeout
        self._send_queue = FrameQueue()
        self._part_places = asyncio.Semaphore(PARTS_IN_FLIGHT)  # keeps large adapters from being in memory as a whole
        self._requests: dict[int, Request] = {}
        self._ids = itertools.count(1)
        self._heartbeat = HeartbeatMonitor()
        self.load: pb.Load | None = None
        self._transfers: set[asyncio.Task[None]] = set()

    async def run(self) -> AsyncIterator[None]:
        """Yield once for each frame from the engine, until the session ends. Raise TimeoutError after silence."""
        call = pb_grpc.EngineServiceStub(self._channel).Session(wait_for_ready=False, metadata=self._metadata)
        writer = asyncio.create_task(self._write(call))
        expired = asyncio.create_task(self._heartbeat.wait_expired(self._heartbeat_timeout))
        expired.add_done_callback(lambda _: call.cancel())
        try:
            while True:
                frame = await call.read()
                if frame is EOF:
                    return
                self._heartbeat.reset()
                self._receive(frame)
                yield
        except asyncio.CancelledError:
            if expired.done() and not expired.cancelled():
                raise TimeoutError from None
            raise
        finally:
            call.cancel()
            for task in (writer, expired, *self._transfers):
                task.cancel()

    def submit(self, submit: pb.Submit, observer: RequestObserver | None) -> AsyncIterator[pb.Delta]:
        submit.request_id = request_id = next(self._ids)
        request = Request(max(1, submit.n), observer)
        self._requests[request_id] = request
        self._send_queue.put(pb.ClientFrame(submit=submit))
        if observer is not None:
            observer.begun(lambda index: self._abort(request_id, index))
        return request.deltas()

    def release(self, request_id: int) -> None:
        """End a request whose reader has left. It stays known until the engine has ended all its completions."""
        request = self._requests.get(request_id)
        if request is None:
            return
        request.drop_unread()
        if request.open:
            self._send_queue.put(pb.ClientFrame(abort=pb.Abort(request_id=request_id)))
        else:
            del self._requests[request_id]

    def _abort(self, request_id: int, index: int) -> None:
        request = self._requests.get(request_id)
        if request is not None and index in request.open:
            self._send_queue.put(pb.ClientFrame(abort=pb.Abort(request_id=request_id, index=index)))

    def send(self, frame: pb.ClientFrame) -> None:
        self._send_queue.put(frame)

    def fail(self, error: EngineError) -> None:
        for request in self._requests.values():
            request.fail(error)

    def _receive(self, frame: pb.EngineFrame) -> None:
        if frame.HasField("step"):
            for delta in frame.step.deltas:
                request = self._requests.get(delta.request_id)
                if request is not None:
                    request.put(delta)
                    if request.left and not request.open:
                        del self._requests[delta.request_id]
        elif frame.HasField("load"):
            self.load = frame.load if frame.load.tenants else None
            self._served.add_report(frame.load.served)
        elif frame.HasField("adapter_wanted"):
            task = asyncio.create_task(self._send_adapter(frame.adapter_wanted))
            self._transfers.add(task)
            task.add_done_callback(self._transfers.discard)

    async def _write(self, call: "grpc.aio.StreamStreamCall[pb.ClientFrame, pb.EngineFrame]") -> None:
        try:
            while True:
                frame = await self._send_queue.next()
                await call.write(frame)
                if frame.HasField("adapter_part"):
                    self._part_places.release()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader sees the same end and reports it

    async def _send_adapter(self, wanted: pb.AdapterRef) -> None:
        try:
            files = await self._source.open(wanted.tenant_id, wanted.digest)
            await self._send_part(pb.AdapterPart(adapter=wanted, config_json=files.config_json))
            async for chunk in files.tensors:
                for start in range(0, len(chunk), PART_BYTES):
                    await self._send_part(pb.AdapterPart(adapter=wanted, tensors=chunk[start : start + PART_BYTES]))
            await self._send_part(pb.AdapterPart(adapter=wanted, last=True))
        except LookupError:
            await self._send_part(pb.AdapterPart(adapter=wanted, last=True, error="there is no such adapter"))
        except Exception as error:
            log.exception("cannot read adapter %s", wanted.digest)
            reason = f"its bytes cannot be read ({type(error).__name__})"
            await self._send_part(pb.AdapterPart(adapter=wanted, last=True, error=reason))

    async def _send_part(self, part: pb.AdapterPart) -> None:
        await self._part_places.acquire()
        self._send_queue.put(pb.ClientFrame(adapter_part=part))


class SubmittedRequest:
    """A request of a session: it is sent when the block begins, and aborted when the block ends before it does."""

    def __init__(self, session: Session, submit: pb.Submit, observer: RequestObserver | None) -> None:
        self._session = session
        self._submit = submit
        self._observer = observer

    async def __aenter__(self) -> AsyncIterator[pb.Delta]:
        return self._session.submit(self._submit, self._observer)

    async def __aexit__(self, *_: object) -> None:
        self._session.release(self._submit.request_id)


class HeartbeatMonitor:
    """Measures silence in ticks of the event loop.

    While this whole process is stopped, messages of the peer may arrive and wait unread, so that time does not
    count.
    """

    def __init__(self) -> None:
        self._ticks = 0

    def reset(self) -> None:
        """Restart the count after a message."""
        self._ticks = 0

    async def wait_expired(self, seconds: float) -> None:
        """Return once there was no message for this long."""
        while self._ticks * _TICK_SECONDS < seconds:
            await asyncio.sleep(_TICK_SECONDS)
            self._ticks += 1
