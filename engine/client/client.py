"""The client of the engine's gRPC service: one long-lived stream, shared by all requests of a process.

Errors
    EngineError
    ├── EngineUnavailable      the engine is down, hung, or went away
    └── EngineRequestError     the engine ended this one request with an error
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.engine.client.channel_options import CLIENT_OPTIONS
from loragate.engine.client.frames import Outbox
from loragate.engine.client.heartbeat import Silence
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

T = TypeVar("T")

PART_BYTES = 1 << 20
_UNARY_SECONDS = 10
PARTS_IN_FLIGHT = 8
_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


class EngineError(Exception):
    """Anything that ended a request on the engine's side."""


class EngineUnavailable(EngineError):
    """The engine is down, hung, or went away while the request ran."""


class EngineRequestError(EngineError):
    """The engine ended this request; others are not concerned. `code` is an `engine_pb2.ErrorCode`.

    With ERROR_CODE_OVERLOADED, `retry_after` is the seconds after which trying again makes sense, and `own_queue` says
    that it is the tenant's own requests that wait.
    """

    def __init__(self, code: int, message: str, *, retry_after: float | None = None, own_queue: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.own_queue = own_queue


@dataclass(frozen=True, slots=True)
class AdapterBytes:
    """An adapter's two files: the config whole, the safetensors file as a stream."""

    config_json: bytes
    tensors: AsyncIterator[bytes]


class AdapterSource(Protocol):
    """Whoever may read blobs. The engine asks it for the adapters that it does not hold."""

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        """Raises LookupError when there is no such adapter, OSError when it cannot be read."""
        ...


class EngineClient:
    """Requests up, deltas down, adapter bytes on demand. Reconnects by itself."""

    def __init__(self, target: str, source: AdapterSource, *, heartbeat_timeout: float = 15.0) -> None:
        """`heartbeat_timeout` seconds without a word end the session of an engine whose process still answers pings."""
        self._target = target
        self._source = source
        self._heartbeat_timeout = heartbeat_timeout
        self._channel: grpc.aio.Channel | None = None
        self._runner: asyncio.Task[None] | None = None
        self._session: _Session | None = None
        self._pins = pb.Pins()
        self._prefetch = pb.Prefetch()

    async def start(self) -> None:
        """Begin connecting in the background; returns at once."""
        self._channel = grpc.aio.insecure_channel(self._target, options=CLIENT_OPTIONS)
        self._runner = asyncio.create_task(self._keep_connected(), name="engine-session")

    async def close(self) -> None:
        """End the session, which aborts what still runs in it."""
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        if self._channel is not None:
            await self._channel.close(None)

    @property
    def ready(self) -> bool:
        """The session is up."""
        return self._session is not None

    @property
    def load(self) -> pb.Load | None:
        """What waits in the engine, as it last said; None while nothing does."""
        return None if self._session is None else self._session.load

    async def describe(self) -> pb.Manifest:
        """The loaded base model. Raises EngineUnavailable."""
        return await self._answer(self._stub().Describe(pb.DescribeRequest(), timeout=_UNARY_SECONDS))

    async def stats(
        self, request: pb.StatsRequest | None = None, *, patience: float = _UNARY_SECONDS
    ) -> pb.StatsResponse:
        """Counters and gauges as of the last step. Raises EngineUnavailable, at the latest after `patience` seconds."""
        return await self._answer(self._stub().Stats(request or pb.StatsRequest(), timeout=patience))

    async def inventory(self, *, patience: float = _UNARY_SECONDS) -> pb.InventoryResponse:
        """Which adapters it holds, and where. Raises EngineUnavailable."""
        return await self._answer(self._stub().Inventory(pb.InventoryRequest(), timeout=patience))

    async def trace(self, last_steps: int = 0) -> bytes:
        """The last steps, or all that are remembered, in Chrome's trace-event format. Raises EngineUnavailable."""
        request = pb.TraceRequest(last_steps=last_steps)
        response: pb.TraceResponse = await self._answer(self._stub().Trace(request, timeout=_UNARY_SECONDS))
        return response.json

    def pin(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Have these adapters kept on the device, and no longer those given before; also after a reconnect."""
        self._pins = pb.Pins(adapters=adapters)
        self._tell(pb.ClientFrame(pins=self._pins))

    def prefetch(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Have these adapters fetched to the engine's disk, in place of those given before; also after a reconnect."""
        self._prefetch = pb.Prefetch(adapters=adapters)
        self._tell(pb.ClientFrame(prefetch=self._prefetch))

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """These are no more: the engine lets go of them, each once nobody uses it. Lost where it is not connected."""
        self._tell(pb.ClientFrame(retire=pb.Retire(adapters=adapters)))

    def _tell(self, frame: pb.ClientFrame) -> None:
        if self._session is not None:
            self._session.tell(frame)

    @asynccontextmanager
    async def generate(self, submit: pb.Submit) -> AsyncIterator[AsyncIterator[pb.Delta]]:
        """Run a request; leaving the block before the end aborts it in the engine.

        Raises EngineUnavailable, and EngineRequestError from the iterator.
        """
        session = self._session
        if session is None:
            raise EngineUnavailable("the engine is not running")
        deltas = session.submit(submit)
        try:
            yield deltas
        finally:
            session.release(submit.request_id)

    def _stub(self) -> pb_grpc.EngineServiceStub:
        if self._channel is None:
            raise EngineUnavailable("the engine client was not started")
        return pb_grpc.EngineServiceStub(self._channel)

    async def _answer(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise EngineUnavailable(f"the engine does not answer ({error.code().name})") from error

    async def _keep_connected(self) -> None:
        assert self._channel is not None
        failures = 0
        while True:
            session = _Session(self._channel, self._source, self._heartbeat_timeout)
            session.tell(pb.ClientFrame(pins=self._pins))
            session.tell(pb.ClientFrame(prefetch=self._prefetch))
            try:
                async for _ in session.run():
                    self._session, failures = session, 0
            except grpc.aio.AioRpcError as error:
                log.debug("engine session ended: %s", error.code().name)
            except TimeoutError:
                log.warning("the engine was silent for %.1f s: session dropped", self._heartbeat_timeout)
            finally:
                self._session = None
                session.fail(EngineUnavailable("the engine went away while the request ran"))
            await asyncio.sleep(_BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)])
            failures += 1


class _Session:
    """One stream and the requests that live in it."""

    def __init__(self, channel: grpc.aio.Channel, source: AdapterSource, heartbeat_timeout: float) -> None:
        self._channel = channel
        self._source = source
        self._heartbeat_timeout = heartbeat_timeout
        self._outbox = Outbox()
        self._part_places = asyncio.Semaphore(PARTS_IN_FLIGHT)  # a large adapter never sits whole in memory
        self._requests: dict[int, _Request] = {}
        self._ids = itertools.count(1)
        self._silence = Silence()
        self.load: pb.Load | None = None
        self._transfers: set[asyncio.Task[None]] = set()

    async def run(self) -> AsyncIterator[None]:
        """Yields once for each frame from the engine. Ends or raises when the session does, with TimeoutError
        after silence."""
        call = pb_grpc.EngineServiceStub(self._channel).Session(wait_for_ready=False)
        writer = asyncio.create_task(self._write(call))
        silent = asyncio.create_task(self._silence.lasts(self._heartbeat_timeout))
        silent.add_done_callback(lambda _: call.cancel())
        try:
            while True:
                frame = await call.read()
                if frame is EOF:
                    return
                self._silence.ends()
                self._receive(frame)
                yield
        except asyncio.CancelledError:
            if silent.done() and not silent.cancelled():
                raise TimeoutError from None
            raise
        finally:
            call.cancel()
            for task in (writer, silent, *self._transfers):
                task.cancel()

    def submit(self, submit: pb.Submit) -> AsyncIterator[pb.Delta]:
        submit.request_id = next(self._ids)
        request = _Request(pending=max(1, submit.n))
        self._requests[submit.request_id] = request
        self._outbox.put(pb.ClientFrame(submit=submit))
        return request.deltas()

    def release(self, request_id: int) -> None:
        request = self._requests.pop(request_id, None)
        if request is not None and request.pending > 0:
            self._outbox.put(pb.ClientFrame(abort=pb.Abort(request_id=request_id)))

    def tell(self, frame: pb.ClientFrame) -> None:
        self._outbox.put(frame)

    def fail(self, error: EngineError) -> None:
        for request in self._requests.values():
            request.put(error)

    def _receive(self, frame: pb.EngineFrame) -> None:
        if frame.HasField("step"):
            for delta in frame.step.deltas:
                request = self._requests.get(delta.request_id)
                if request is not None:
                    request.put(delta)
        elif frame.HasField("load"):
            self.load = frame.load if frame.load.tenants else None
        elif frame.HasField("adapter_wanted"):
            task = asyncio.create_task(self._send_adapter(frame.adapter_wanted))
            self._transfers.add(task)
            task.add_done_callback(self._transfers.discard)

    async def _write(self, call: "grpc.aio.StreamStreamCall[pb.ClientFrame, pb.EngineFrame]") -> None:
        try:
            while True:
                frame = await self._outbox.next()
                await call.write(frame)
                if frame.HasField("adapter_part"):
                    self._part_places.release()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader sees the same end and tells everyone

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
        self._outbox.put(pb.ClientFrame(adapter_part=part))


class _Request:
    """What its consumer has not read yet: of each completion one delta, which grows while nobody reads it.

    Kept one by one they would be large: each keeps the memory of the whole frame that it came in.
    """

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self._unread: dict[int, pb.Delta] = {}  # by the completion's index, the longest unread first
        self._error: EngineError | None = None
        self._news = asyncio.Event()

    def put(self, item: "pb.Delta | EngineError") -> None:
        if isinstance(item, EngineError):
            self._fail(item)
        elif item.finish_reason == pb.FINISH_REASON_ERROR:
            self._fail(_error_from(item.error))
        else:
            self._add(item)
        self._news.set()

    def _fail(self, error: EngineError) -> None:
        self.pending, self._error = 0, error

    def _add(self, delta: pb.Delta) -> None:
        if delta.finish_reason:
            self.pending -= 1
        unread = self._unread.setdefault(delta.index, delta)
        if unread is not delta:
            unread.MergeFrom(delta)

    async def deltas(self) -> AsyncIterator[pb.Delta]:
        while True:
            while self._unread:
                yield self._unread.pop(next(iter(self._unread)))
            if self._error is not None:
                raise self._error
            if self.pending <= 0:
                return
            self._news.clear()
            await self._news.wait()


def _error_from(error: pb.EngineError) -> EngineRequestError:
    retry_after = error.retry_after_ms / 1000 or None
    return EngineRequestError(error.code, error.message, retry_after=retry_after, own_queue=error.own_queue)
