"""Servers for commands, each on its own thread."""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.gateway import tiny_model
from tests.gateway.gateway_setup import new_admin_key, new_config, stub_engine
from tests.gateway.running_gateway import ADMIN_KEY, serving
from tests.gateway.tiny_model import byte_level_tokenizer

__all__ = ["ADMIN_KEY", "ChatServer", "chat_server", "real_gateway", "write_adapter"]

MODULE = "model.layers.0.self_attn.q_proj"


@contextmanager
def real_gateway(folder: Path, *, engine_runs: bool = True, **settings: Any) -> Iterator[str]:
    """Run the gateway of tests/gateway on a new store without tenants; `settings` are further fields of
    `GatewayConfig`.

    Where no engine runs, the store already has its base model.
    """
    ready: queue.SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.SimpleQueue()

    async def serve() -> None:
        async with stub_engine(byte_level_tokenizer(), **tiny_model.HEADS) as engine:
            config = replace(await new_config(folder, engine), **settings)
            await new_admin_key(config)
            async with serving(config, engine, ("", ADMIN_KEY, ADMIN_KEY)) as gateway:
                await gateway.until_ready()
                if not engine_runs:
                    await engine.kill()
                done = asyncio.Event()
                ready.put((gateway.base_url, asyncio.get_running_loop(), done))
                await done.wait()

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(asyncio.run, serve())
        served.add_done_callback(lambda _: ready.put(("", asyncio.new_event_loop(), asyncio.Event())))
        url, loop, done = ready.get()
        try:
            assert url, served.exception()
            yield url
        finally:
            loop.call_soon_threadsafe(done.set)
            served.result()


def write_adapter(folder: Path, *, poison: bool = False, seed: int = 0) -> Path:
    """Write the files that PEFT saves."""
    name = f"base_model.model.{MODULE}.lora_B.weight" if poison else None
    return tiny_model.write_adapter(folder, rank=2, poison=name, seed=seed)


class ChatServer:
    """Implements the chat completions of the contract: streams each reply word by word and records its requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.break_off = False
        self.error: dict[str, Any] | None = None
        self.url = ""

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
        for piece in ("You said ", body["messages"][-1]["content"], "."):
            yield {"choices": [{"index": 0, "delta": {"content": piece}}]}
        if self.error is not None:
            yield {"error": self.error}
        elif not self.break_off:
            yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            yield "[DONE]"


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    chat = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": "base"}, {"id": "an-adapter"}]})

        def do_POST(self) -> None:
            chat.keys.append(self.headers["authorization"].removeprefix("Bearer "))
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            chat.bodies.append(body)
            if body["model"] == "missing":
                self._send({"error": {"message": "No such model."}}, 404)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in chat.events(body):
                data = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f": a comment\r\ndata: {data}\r\n\r\n".encode())

        def _send(self, content: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.send_header("x-request-id", "req_42")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    chat.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
