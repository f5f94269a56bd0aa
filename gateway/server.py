"""One gateway process: uvicorn on a socket that is already bound, and an orderly shutdown.

The first SIGTERM or SIGINT drains: readiness is withdrawn, new requests get 503 from the listener, which stays open,
and running requests get `drain_seconds`, then a typed error. A second signal ends the process at once.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from loragate.engine.runtime.interpreter import collect_less_often, freeze_objects, shorten_switch_interval
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.acceptor import AcceptingServer
from loragate.gateway.connections.connection_limit import ConnectionLimit
from loragate.gateway.connections.guarded_protocol import protocol
from loragate.gateway.http.lifecycle import Lifecycle

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_ERROR_SECONDS = 2.0  # for the last errors to reach their clients


def run(config: GatewayConfig, sock: socket.socket) -> None:
    """Serve on the bound socket until a signal; return after an orderly shutdown."""
    shorten_switch_interval()
    lifecycle = Lifecycle()
    settings = uvicorn_settings(create_app(config, lifecycle), config)
    _DrainingServer(settings, lifecycle, config).run(sockets=[sock])


def uvicorn_settings(app: FastAPI, config: GatewayConfig) -> uvicorn.Config:
    """Return uvicorn's settings for this application."""
    return uvicorn.Config(
        app,
        http=protocol(config.stall_seconds, ConnectionLimit(config.max_connections)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # Longer than clients keep idle connections: the server must not close one on which a request is about to come.
        timeout_keep_alive=max(1, round(config.stall_seconds)),
        timeout_graceful_shutdown=int(_LAST_ERROR_SECONDS),
    )


class _DrainingServer(AcceptingServer):
    def __init__(self, settings: uvicorn.Config, lifecycle: Lifecycle, config: GatewayConfig) -> None:
        super().__init__(settings, config.tls, shares=config.workers > 1)
        self._lifecycle = lifecycle
        self._drain_seconds = config.drain_seconds
        self._drain: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replace uvicorn's handler, which closes the listener at the first signal and raises the signal again at the
        end."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal)
        try:
            yield
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept, and tune the interpreter for what has been loaded by then."""
        await super().startup(sockets)
        freeze_objects()
        collect_less_often()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """After a second signal, end the process here. Python's own shutdown would cancel what is still running, and
        gRPC's core might write to memory that a cancelled operation has freed."""
        await super().shutdown(sockets)
        if self.force_exit:
            logging.shutdown()
            os._exit(0)

    def _on_signal(self) -> None:
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._drain_then_exit())
        else:
            self._lifecycle.expire()
            self.force_exit = True
            self.should_exit = True

    async def _drain_then_exit(self) -> None:
        self._lifecycle.begin_drain()
        log.info("draining: %d requests are running", self._lifecycle.running)
        if not await self._lifecycle.idle(self._drain_seconds):
            self._lifecycle.expire()
            await self._lifecycle.idle(_LAST_ERROR_SECONDS)
        self.should_exit = True
