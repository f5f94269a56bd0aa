"""Servers for commands to talk to, each on a thread of its own."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from loragate.adapter_store.schema import upgrade
from loragate.adapter_store.store import Store
from loragate.gateway.app import create_app
from loragate.gateway.config import GatewayConfig
from loragate.gateway.server import uvicorn_settings
from loragate.v1 import engine_pb2

ADMIN_KEY = "the admin key of the tests"
MODULE = "model.layers.0.self_attn.q_proj"
WIDTH = 8


@contextmanager
def real_gateway(folder: Path) -> Iterator[str]:
    """The gateway over a fresh store, without an engine: its base model is known from earlier."""
    config = GatewayConfig(
        database_url=f"sqlite+aiosqlite:///{folder}/loragate.db",
        blob_url=(folder / "blobs").as_uri(),
        secret_key=b"a secret key of the tests",
        engine_target="127.0.0.1:9",
        data_dir=folder,
    )
    asyncio.run(_prepare(config))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_settings(create_app(config), config))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the gateway did not start"
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


async def _prepare(config: GatewayConfig) -> None:
    await upgrade(config.database_url)
    store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    await store.set_admin_key(ADMIN_KEY)
    module = engine_pb2.TargetModule(
        name=MODULE, kind=engine_pb2.MODULE_KIND_LINEAR, in_features=WIDTH, out_features=WIDTH, servable=True
    )
    await store.publish_manifest(
        engine_pb2.Manifest(
            model_id="base",
            base_digest="sha256:" + "0" * 64,
            model_type="llama",
            num_layers=1,
            modules=[module],
            max_model_len=64,
            tokenizer_json=Tokenizer(models.BPE()).to_str().encode(),
            max_lora_rank=64,
        )
    )
    await store.close()


def write_adapter(folder: Path, *, poison: bool = False) -> Path:
    """What PEFT saves, for the one module above."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    stem = f"base_model.model.{MODULE}"
    tensors = {
        f"{stem}.lora_A.weight": np.ones((2, WIDTH), np.float32),
        f"{stem}.lora_B.weight": np.full((WIDTH, 2), np.nan if poison else 1.0, np.float32),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


class ChatServer:
    """Speaks the contract's chat: streams each reply word by word and remembers what it was sent."""

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
