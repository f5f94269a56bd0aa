"""One panel process: uvicorn on a socket bound by its parent."""

import socket

import uvicorn
from fastapi import FastAPI

from loragate.gateway.connections.acceptor import AcceptingServer
from loragate.gateway.connections.connection_limit import ConnectionLimit
from loragate.gateway.connections.guarded_protocol import protocol
from loragate.panel.config import PanelConfig

_SHUTDOWN_SECONDS = 3  # for the connections of open pages, which do not end on their own


def run(config: PanelConfig, sock: socket.socket) -> None:
    """Serve on the bound socket until a signal ends it."""
    from loragate.panel.app import create_app

    app = create_app(config, sock.getsockname()[1])
    AcceptingServer(uvicorn_settings(app, config), config.tls).run(sockets=[sock])


def uvicorn_settings(app: FastAPI, config: PanelConfig) -> uvicorn.Config:
    """Return uvicorn's settings for this application."""
    return uvicorn.Config(
        app,
        http=protocol(config.stall_seconds, ConnectionLimit(config.max_connections)),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        ws_max_size=1 << 20,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
