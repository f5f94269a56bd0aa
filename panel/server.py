"""One panel process: uvicorn on a socket bound by its parent."""

import socket

import uvicorn

from loragate.panel.config import PanelConfig

_SHUTDOWN_SECONDS = 3  # for the connections of open pages, which do not end on their own


def run(config: PanelConfig, sock: socket.socket) -> None:
    """Serve on the bound socket until a signal ends it."""
    from loragate.panel.app import create_app

    app = create_app(config, sock.getsockname()[1])
    settings = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=1 << 20,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    uvicorn.Server(settings).run(sockets=[sock])
