"""One panel process: uvicorn on a socket that somebody else bound."""

import socket

import uvicorn

from loragate.panel.config import PanelConfig

_GOODBYE_SECONDS = 3  # for pages' connections, which never end by themselves


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
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
    )
    uvicorn.Server(settings).run(sockets=[sock])
