"""A proxy between a client and a server that keeps what the client sends."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]


@dataclass(frozen=True)
class Sent:
    """A request of a client, and how the server answered."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int


Change = Callable[[str, Any], Any]


def unchanged(path: str, body: Any) -> Any:
    return body


@dataclass
class Recorder:
    """Where the proxy listens, and what went through it."""

    base_url: str
    change: Change
    sent: list[Sent] = field(default_factory=list)


def _application(recorder: Recorder, upstream: str) -> Starlette:
    client = httpx.AsyncClient(base_url=upstream, timeout=600)

    async def forward(request: Request) -> StreamingResponse:
        content = await request.body()
        body = json.loads(content) if content else None
        changed = recorder.change(request.url.path, body)
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        asked = client.build_request(
            request.method, request.url.path, params=request.query_params, headers=headers,
            content=content if changed == body else json.dumps(changed).encode(),
        )  # fmt: skip
        answer = await client.send(asked, stream=True)
        sent = Sent(request.method, request.url.path, dict(request.headers), body, answer.status_code)
        recorder.sent.append(sent)
        return StreamingResponse(
            _raw(answer),
            answer.status_code,
            {name: value for name, value in answer.headers.items() if name not in HOP},
            background=BackgroundTask(answer.aclose),
        )

    return Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)])


async def _raw(answer: httpx.Response) -> AsyncIterator[bytes]:
    async for piece in answer.aiter_raw():
        yield piece


@contextmanager
def recording(upstream: str, change: Change = unchanged) -> Iterator[Recorder]:
    """Forward what comes to a free port to `upstream`. `change` rewrites bodies on their way, by the request's path."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        recorder = Recorder(f"http://127.0.0.1:{sock.getsockname()[1]}", change)
        settings = uvicorn.Config(_application(recorder, upstream), log_level="warning", lifespan="off")
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
        thread.start()
        try:
            yield recorder
        finally:
            server.should_exit = True
            thread.join()
