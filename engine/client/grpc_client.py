"""The client of the engine's gRPC service: one long-lived stream, shared by all requests of a process."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import grpc
import grpc.aio

from loragate.engine.client.calls import EngineCalls
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.engine.client.session import AdapterSource, Session, SubmittedRequest
from loragate.engine.link_security import LinkTls
from loragate.engine.served_units import ServedTotals
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_REPEATS = 60  # attempts after which the log repeats why the engine rejects them
HEARTBEAT_SECONDS = 15.0  # without a message, after which a session ends


class GrpcEngineClient(EngineCalls):
    """An EngineClient of an engine in another process. It provides adapter bytes on demand."""

    def __init__(
        self,
        target: str,
        source: AdapterSource,
        *,
        secret: str = "",
        previous_secrets: Sequence[str] = (),
        tls: LinkTls | None = None,
        certificate_name: str | None = None,
        heartbeat_timeout: float = HEARTBEAT_SECONDS,
    ) -> None:
        """Create a client; see EngineCalls. After `heartbeat_timeout` seconds without a message, the session of an
        engine whose process still answers pings ends."""
        super().__init__(
            target, secret=secret, previous_secrets=previous_secrets, tls=tls, certificate_name=certificate_name
        )
        self._source = source
        self._heartbeat_timeout = heartbeat_timeout
        self._runner: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._pins = pb.Pins()
        self._prefetch = pb.Prefetch()
        self._served = ServedTotals()

    async def start(self) -> None:
        await super().start()
        self._runner = asyncio.create_task(self._run_connection_loop(), name="engine-session")

    async def close(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        await super().close()

    @property
    def ready(self) -> bool:
        return self._session is not None

    @property
    def load(self) -> pb.Load | None:
        return None if self._session is None else self._session.load

    @property
    def served(self) -> Mapping[str, float]:
        return self._served.totals

    def pin(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self._pins = pb.Pins(adapters=adapters)
        self._notify(pb.ClientFrame(pins=self._pins))

    def prefetch(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self._prefetch = pb.Prefetch(adapters=adapters)
        self._notify(pb.ClientFrame(prefetch=self._prefetch))

    def preload(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self._notify(pb.ClientFrame(preload=pb.Preload(adapters=adapters)))

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None:
        self._notify(pb.ClientFrame(retire=pb.Retire(adapters=adapters)))

    def _notify(self, frame: pb.ClientFrame) -> None:
        if self._session is not None:
            self._session.send(frame)

    def generate(self, submit: pb.Submit, observer: RequestObserver | None = None) -> SubmittedRequest:
        if self._session is None:
            raise EngineUnavailable("the engine is not running")
        return SubmittedRequest(self._session, submit, observer)

    async def _run_connection_loop(self) -> None:
        task, failures = asyncio.current_task(), 0
        assert task is not None
        while True:
            self._use_renewed_certificates()
            assert self._channel is not None
            session = Session(self._channel, self._source, self._metadata, self._heartbeat_timeout, self._served)
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
