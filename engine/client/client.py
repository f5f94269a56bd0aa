"""The client of the engine's gRPC service: one long-lived stream, shared by all requests of a process.

Errors
    EngineError
    ├── EngineUnavailable      the engine is down, hung, or its connection was lost
    └── EngineRequestError     the engine ended this one request with an error
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.engine.client.channel_options import CLIENT_OPTIONS
from loragate.engine.client.frames import FrameQueue
from loragate.engine.client.heartbeat import HeartbeatMonitor
from loragate.engine.link_security import is_unix, metadata_of
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

T = TypeVar("T")

PART_BYTES = 1 << 20
_UNARY_SECONDS = 10
PARTS_IN_FLIGHT = 8
_WITHOUT_RESULT = (pb.FINISH_REASON_ERROR, pb.FINISH_REASON_ABORTED)
_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_REPEATS = 60  # attempts after which the log repeats why the engine rejects them


class EngineError(Exception):
    """Any error that ends a request on the engine's side."""


class EngineUnavailable(EngineError):
    """The engine is down, hung, or its connection was lost while the request ran."""


class EngineRequestError(EngineError):
    """The engine ended this request; others are not affected. `code` is an `engine_pb2.ErrorCode`.

    With ERROR_CODE_OVERLOADED, `retry_after` is the time in seconds after which a retry makes sense, and `own_queue` is
    true if the tenant's own requests wait.
    """

    def __init__(self, code: int, message: str, *, retry_after: float | None = None, own_queue: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.own_queue = own_queue


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


class RequestObserver(Protocol):
    """Observes a request for as long as the engine works on it, also after its client has left. No method may wait."""

    def begun(self, abort: Callable[[int], None]) -> None:
        """Record that the request was sent; `abort` ends its completion of this index in the engine."""
        ...

    def received(self, delta: pb.Delta) -> None:
        """Record a delta as it arrives, whether it will be read or not."""
        ...

    def ended(self) -> None:
        """Record that the engine does nothing more for the request, or can no longer be asked."""
        ...


class EngineClient:
    """Sends requests, receives deltas, and provides adapter bytes on demand. Reconnects automatically."""

    def __init__(
        self,
        target: str,
        source: AdapterSource,
        *,
        secret: str = "",
        previous_secrets: Sequence[str] = (),
        ca: Path | None = None,
        heartbeat_timeout: float = 15.0,
    ) -> None:
        """Create a client of the engine at `target`, which demands `secret`, or still a previous one.

        `ca` is a file with the certificate of an engine that is reached with TLS, or of the authority that signed it.
        After `heartbeat_timeout` seconds without a message, the session of an engine whose process still answers pings
        ends.
        """
        self._target = target
        self._metadata = metadata_of(secret, previous_secrets)
        self._ca = ca
        self._source = source
        self._heartbeat_timeout = heartbeat_timeout
        self._channel: grpc.aio.Channel | None = None
        self._runner: asyncio.Task[None] | None = None
        self._session: _Session | None = None
        self._pins = pb.Pins()
        self._prefetch = pb.Prefetch()

    async def start(self) -> None:
        """Start connecting in the background, and return at once."""
        self._channel = _open_channel(self._target, self._ca)
        self._runner = asyncio.create_task(self._run_connection_loop(), name="engine-session")

    async def close(self) -> None:
        """End the session, which aborts its running requests."""
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        if self._channel is not None:
            await self._channel.close(None)

    @property
    def ready(self) -> bool:
        """Whether the session is up."""
        return self._session is not None

    @property
    def load(self) -> pb.Load | None:
        """The load that the engine reported last; None while no request waits."""
        return None if self._session is None else self._session.load

    async def describe(self) -> pb.Manifest:
        """Return the manifest of the loaded base model. Raise EngineUnavailable."""
        return await self._call(
            self._stub().Describe(pb.DescribeRequest(), timeout=_UNARY_SECONDS, metadata=self._metadata)
        )

    async def stats(
        self, request: pb.StatsRequest | None = None, *, timeout_seconds: float = _UNARY_SECONDS
    ) -> pb.StatsResponse:
        """Return counters and gauges as of the last step. Raise EngineUnavailable, at the latest after the timeout."""
        return await self._call(
            self._stub().Stats(request or pb.StatsRequest(), timeout=timeout_seconds, metadata=self._metadata)
        )

    async def inventory(self, *, timeout_seconds: float = _UNARY_SECONDS) -> pb.InventoryResponse:
        """Return the adapters that the engine holds, by tier. Raise EngineUnavailable."""
        return await self._call(
            self._stub().Inventory(pb.InventoryRequest(), timeout=timeout_seconds, metadata=self._metadata)
        )

    async def trace(self, last_steps: int = 0) -> bytes:
        """Return the last steps, or all that are recorded, in Chrome's trace-event format. Raise EngineUnavailable."""
        request = pb.TraceRequest(last_steps=last_steps)
        call = self._stub().Trace(request, timeout=_UNARY_SECONDS, metadata=self._metadata)
        response: pb.TraceResponse = await self._call(call)
        return response.json

    def pin(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Keep these adapters on the device, in place of those given before; also after a reconnect."""
        self._pins = pb.Pins(adapters=adapters)
        self._notify(pb.ClientFrame(pins=self._pins))

    def prefetch(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Fetch these adapters to the engine's disk, in place of those given before; also after a reconnect."""
        self._prefetch = pb.Prefetch(adapters=adapters)
        self._notify(pb.ClientFrame(prefetch=self._prefetch))

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Report deleted adapters: the engine releases each one once it is unused. Lost while not connected."""
        self._notify(pb.ClientFrame(retire=pb.Retire(adapters=adapters)))

    def _notify(self, frame: pb.ClientFrame) -> None:
        if self._session is not None:
            self._session.send(frame)

    @asynccontextmanager
    async def generate(
        self, submit: pb.Submit, observer: RequestObserver | None = None
    ) -> AsyncIterator[AsyncIterator[pb.Delta]]:
        """Run a request; leaving the block before the end aborts it in the engine.

        Raise EngineUnavailable, and EngineRequestError from the iterator.
        """
        session = self._session
        if session is None:
            raise EngineUnavailable("the engine is not running")
        deltas = session.submit(submit, observer)
        try:
            yield deltas
        finally:
            session.release(submit.request_id)

    def _stub(self) -> pb_grpc.EngineServiceStub:
        if self._channel is None:
            raise EngineUnavailable("the engine client was not started")
        return pb_grpc.EngineServiceStub(self._channel)

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise EngineUnavailable(f"the engine does not respond ({error.code().name})") from error

    async def _run_connection_loop(self) -> None:
        task, failures = asyncio.current_task(), 0
        assert self._channel is not None
        assert task is not None
        while True:
            session = _Session(self._channel, self._source, self._metadata, self._heartbeat_timeout)
            session.send(pb.ClientFrame(pins=self._pins))
            session.send(pb.ClientFrame(prefetch=self._prefetch))
            try:
                async for _ in session.run():
                    self._session, failures = session, 0
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNAUTHENTICATED and failures % _REPEATS == 0:
                    log.error("the engine rejects this process: %s", error.details())
                log.debug("engine session ended: %s", error.code().name)
            except TimeoutError:
                log.warning("no message from the engine for %.1f s: session dropped", self._heartbeat_timeout)
            finally:
                self._session = None
                session.fail(EngineUnavailable("the connection to the engine was lost while the request ran"))
            if task.cancelling():  # gRPC drops a cancellation that comes before the call has begun
                raise asyncio.CancelledError
            await asyncio.sleep(_BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)])
            failures += 1


def _open_channel(target: str, ca: Path | None) -> grpc.aio.Channel:
    if ca is None or is_unix(target):
        return grpc.aio.insecure_channel(target, options=CLIENT_OPTIONS)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    return grpc.aio.secure_channel(target, credentials, options=CLIENT_OPTIONS)


class _Session:
    """One stream and the requests in it."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        source: AdapterSource,
        metadata: tuple[tuple[str, str], ...],
        heartbeat_timeout: float,
    ) -> None:
        self._channel = channel
        self._source = source
        self._metadata = metadata
        self._heartbeat_timeout = heartbeat_timeout
        self._send_queue = FrameQueue()
        self._part_places = asyncio.Semaphore(PARTS_IN_FLIGHT)  # keeps large adapters from being in memory as a whole
        self._requests: dict[int, _Request] = {}
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
        request = _Request(max(1, submit.n), observer)
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


class _Request:
    """The unread output of a request: one delta per completion, which is extended until it is read.

    Individual deltas would be large, because each keeps the memory of the whole frame that it came in.
    """

    def __init__(self, completions: int, observer: RequestObserver | None) -> None:
        self.open = set(range(completions))  # the completions that the engine has not ended
        self.left = False  # its reader has left
        self._observer = observer
        self._unread: dict[int, pb.Delta] = {}  # by the completion's index, the longest unread first
        self._error: EngineError | None = None
        self._news = asyncio.Event()

    def put(self, delta: pb.Delta) -> None:
        """Take a delta of the engine."""
        if self._observer is not None:
            self._observer.received(delta)
        reason = delta.finish_reason
        if reason == pb.FINISH_REASON_ERROR:
            self._error = _error_from(delta.error)
        elif reason != pb.FINISH_REASON_ABORTED and not self.left:
            self._add(delta)
        if reason:
            whole = reason in _WITHOUT_RESULT and not delta.HasField("computed")
            self._end(list(self.open) if whole else [delta.index])
        self._news.set()

    def fail(self, error: EngineError) -> None:
        """End the request because its session has ended."""
        self._error = error
        self._end(list(self.open))
        self._news.set()

    def drop_unread(self) -> None:
        """Drop what will not be read."""
        self.left = True
        self._unread.clear()

    async def deltas(self) -> AsyncIterator[pb.Delta]:
        while True:
            while self._unread:
                yield self._unread.pop(next(iter(self._unread)))
            if self._error is not None:
                raise self._error
            if not self.open:
                return
            self._news.clear()
            await self._news.wait()

    def _add(self, delta: pb.Delta) -> None:
        unread = self._unread.setdefault(delta.index, delta)
        if unread is not delta:
            unread.MergeFrom(delta)

    def _end(self, indices: Iterable[int]) -> None:
        before = bool(self.open)
        self.open.difference_update(indices)
        if before and not self.open and self._observer is not None:
            self._observer.ended()


def _error_from(error: pb.EngineError) -> EngineRequestError:
    retry_after = error.retry_after_ms / 1000 or None
    return EngineRequestError(error.code, error.message, retry_after=retry_after, own_queue=error.own_queue)
