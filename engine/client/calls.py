"""The engine's unary calls, for those that send it no requests."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Sequence
from functools import partial
from typing import TypeVar

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from loragate.engine.client.channel_options import CLIENT_OPTIONS
from loragate.engine.client.client import CALL_SECONDS
from loragate.engine.client.errors import EngineRequestError, EngineUnavailable
from loragate.engine.link_security import LinkTls, is_unix, metadata_of
from loragate.engine.server_tls import Reloaded
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

T = TypeVar("T")

_PART_SECONDS = 120.0  # without a part of an export, after which it fails; the adapter may have to be fetched first
_EXPORT_ERRORS = {
    grpc.StatusCode.FAILED_PRECONDITION: pb.ERROR_CODE_INVALID_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: pb.ERROR_CODE_INVALID_REQUEST,
    grpc.StatusCode.NOT_FOUND: pb.ERROR_CODE_ADAPTER_UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: pb.ERROR_CODE_OVERLOADED,
}


class EngineCalls:
    """Asks one engine. See EngineClient."""

    def __init__(
        self,
        target: str,
        *,
        secret: str = "",
        previous_secrets: Sequence[str] = (),
        tls: LinkTls | None = None,
        certificate_name: str | None = None,
    ) -> None:
        """Ask the engine at `target`, which demands `secret`, or still a previous one.

        `tls` has the certificates for an engine that is reached with TLS, and `certificate_name` is the name in the
        engine's, if that is not the target's.
        """
        self._target = target
        self._tls = None if is_unix(target) else tls
        self._credentials: Reloaded[grpc.ChannelCredentials] | None = None
        self._certificate_name = certificate_name
        self._metadata = metadata_of(secret, previous_secrets)
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()  # of channels with earlier certificates

    async def start(self) -> None:
        """Open the channel, which connects with the first call."""
        if self._tls is not None:
            self._credentials = Reloaded(self._tls.paths, partial(_credentials, self._tls))
        self._channel = self._open_channel()

    async def close(self) -> None:
        """Close the channel."""
        for closing in self._closing:
            closing.cancel()
        if self._channel is not None:
            await self._channel.close(None)

    async def describe(self) -> pb.Manifest:
        return await self._call(
            self._stub().Describe(pb.DescribeRequest(), timeout=CALL_SECONDS, metadata=self._metadata)
        )

    async def stats(
        self, request: pb.StatsRequest | None = None, *, timeout_seconds: float = CALL_SECONDS
    ) -> pb.StatsResponse:
        return await self._call(
            self._stub().Stats(request or pb.StatsRequest(), timeout=timeout_seconds, metadata=self._metadata)
        )

    async def inventory(self, *, timeout_seconds: float = CALL_SECONDS) -> pb.InventoryResponse:
        return await self._call(
            self._stub().Inventory(pb.InventoryRequest(), timeout=timeout_seconds, metadata=self._metadata)
        )

    async def trace(self, last_steps: int = 0) -> bytes:
        request = pb.TraceRequest(last_steps=last_steps)
        call = self._stub().Trace(request, timeout=CALL_SECONDS, metadata=self._metadata)
        response: pb.TraceResponse = await self._call(call)
        return response.json

    async def export_merged(
        self, adapter: pb.AdapterRef, base_digest: str, *, size_only: bool = False
    ) -> AsyncGenerator[pb.ExportPart]:
        request = pb.ExportRequest(adapter=adapter, base_digest=base_digest, size_only=size_only)
        call = self._stub().ExportMerged(request, metadata=self._metadata)
        try:
            while True:
                async with asyncio.timeout(_PART_SECONDS):
                    part = await call.read()
                if part is EOF:
                    return
                yield part
        except grpc.aio.AioRpcError as error:
            code = _EXPORT_ERRORS.get(error.code())
            if code is not None:
                raise EngineRequestError(code, error.details() or "") from error
            raise EngineUnavailable(f"the engine does not export ({error.code().name})") from error
        except TimeoutError:
            raise EngineUnavailable("the engine has sent nothing of an export for too long") from None
        finally:
            call.cancel()

    def _use_renewed_certificates(self) -> None:
        """Open a new channel if the files of the certificates have changed, and can be used."""
        if self._channel is not None and self._credentials is not None and self._credentials.changed() is not None:
            before, self._channel = self._channel, self._open_channel()
            closing = asyncio.create_task(before.close(CALL_SECONDS))  # once the calls on it have ended
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _open_channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._target, options=CLIENT_OPTIONS)
        options: list[tuple[str, int | str]] = [*CLIENT_OPTIONS]
        if self._certificate_name is not None:
            options.append(("grpc.ssl_target_name_override", self._certificate_name))
        return grpc.aio.secure_channel(self._target, self._credentials.current(), options=options)

    def _stub(self) -> pb_grpc.EngineServiceStub:
        if self._channel is None:
            raise EngineUnavailable("the engine client was not started")
        return pb_grpc.EngineServiceStub(self._channel)

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise EngineUnavailable(f"the engine does not respond ({error.code().name})") from error


def _credentials(tls: LinkTls) -> grpc.ChannelCredentials:
    """Return what a client shows and trusts. Raise OSError for files that cannot be used."""
    if tls.cert is not None:  # gRPC would notice a key of another certificate only when it connects
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.cert, tls.key, password="")
    key, cert = (None if each is None else each.read_bytes() for each in (tls.key, tls.cert))
    return grpc.ssl_channel_credentials(tls.ca.read_bytes(), key, cert)
