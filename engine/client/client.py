"""The client of the engine's gRPC service: one long-lived stream, shared by all requests of a process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio

from loragate.engine.client.channel_options import CLIENT_OPTIONS
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.engine.client.session import AdapterSource, Session
from loragate.engine.link_security import is_unix, metadata_of
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

T = TypeVar("T")

_UNARY_SECONDS = 10
_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_REPEATS = 60  # attempts after which the log repeats why the engine rejects them


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
        self._session: Session | None = None
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
            session = Session(self._channel, self._source, self._metadata, self._heartbeat_timeout)
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
