"""The gRPC server of a gateway process, in the event loop of its HTTP server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from loragate.engine.server_tls import grpc_credentials
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.connection_limit import max_grpc_connections
from loragate.gateway.grpc.dispatcher import Dispatcher
from loragate.gateway.grpc.methods import METHODS
from loragate.gateway.grpc.metrics import GrpcMetrics
from loragate.gateway.services import Services

_STOP_SECONDS = 1.0
_IDENTITY_ONLY = 1  # the bit of "no compression"


def _options(config: GatewayConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 1),  # workers share the port, which the supervisor holds
        # The gateway itself rejects a message that is slightly too long; longer ones are rejected before they are read.
        ("grpc.max_receive_message_length", 2 * config.max_json_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 1024),  # of one connection; further ones wait at the client
        # Calls of all connections that have arrived but are not handled yet, including those that were reset at once.
        # Above the first number, calls are cancelled at random, with rising probability.
        ("grpc.server.max_pending_requests", 8192),
        ("grpc.server.max_pending_requests_hard_limit", 16384),
        ("grpc.server_handshake_timeout_ms", round(1000 * config.stall_seconds)),
        # What grows when it is unpacked is bounded only after it has grown.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        # Connections cost files, which the process shares with HTTP. Further ones are closed.
        ("grpc.max_allowed_incoming_connections", max_grpc_connections()),
        ("grpc.max_connection_idle_ms", 5 * 60_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        # Makes clients find new workers and replicas, and ends connections whose client reads nothing.
        ("grpc.max_connection_age_ms", 30 * 60_000),
        ("grpc.max_connection_age_grace_ms", 30 * 60_000),
    ]


def _open_port(server: grpc.aio.Server, address: str, config: GatewayConfig) -> int:
    if config.tls is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, grpc_credentials(config.tls))


@asynccontextmanager
async def serving(
    services: Services, interceptors: "Sequence[grpc.aio.ServerInterceptor[Any, Any]]" = ()
) -> AsyncIterator[int | None]:
    """Serve on `config.grpc_listen` while the block lasts; yield the port, or None if gRPC is disabled.

    Raise OSError if the address is not available.
    """
    config = services.config
    metrics = GrpcMetrics(services.http_metrics.registry)
    if config.grpc_listen is None:
        yield None
        return
    handlers = [Dispatcher(services, METHODS, metrics)]
    server = grpc.aio.server(handlers=handlers, interceptors=interceptors, options=_options(config))
    try:
        port = _open_port(server, config.grpc_listen, config)
    except RuntimeError:
        raise OSError(f"cannot listen on {config.grpc_listen}") from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_STOP_SECONDS)
