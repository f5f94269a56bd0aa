"""A client with a complete response can send its next request, even if the application has not ended the response."""

import asyncio
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

from loragate.gateway.connections.guarded_protocol import protocol


class App:
    """Sends its whole first response, and ends it only later."""

    def __init__(self) -> None:
        self.says_so = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = scope["path"].encode()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if scope["path"] == "/first":
            await self.says_so.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_the_next_request_waits_for_the_end_of_the_first() -> None:
    app, sock = App(), socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=protocol(5.0), lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    writer.write(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (await reader.readuntil(b"/first")).startswith(b"HTTP/1.1 200")
    writer.write(b"GET /second HTTP/1.1\r\nhost: a\r\n\r\n")
    await asyncio.sleep(0.05)  # it arrives before the first one has ended
    app.says_so.set()
    assert (await reader.readuntil(b"/second")).startswith(b"HTTP/1.1 200")
    writer.close()
    server.should_exit = True
    await serving
