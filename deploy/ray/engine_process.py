"""The engine of one replica: `loragate engine` as a child process that ends with it."""

import asyncio
import os
import shutil
import socket
from typing import Any

import ray

from loragate.cli.data_dir.preparation import engine_secrets
from loragate.cli.settings.load import load
from loragate.cli.supervisor.program import our_command
from loragate.engine.client.calls import EngineCalls
from loragate.engine.client.errors import EngineUnavailable

_NODE = "node"  # the host that stands for the node's own address
_POLL_SECONDS = 0.25
_KILL_SECONDS = 10.0


class EngineProcess:
    """Starts an engine that registers itself, asks for its load, and drains it at the end."""

    def __init__(self, model: str, engine_id: str, host: str, drain_seconds: float, threads: int | None) -> None:
        self._settings = load(model=model)
        self._id = engine_id
        self._target = f"{ray.util.get_node_ip_address() if host == _NODE else host}:{_free_port()}"
        self._drain_seconds = drain_seconds
        self._threads = threads
        self._cache = self._settings.data_dir / "engine-cache" / engine_id
        self._process: asyncio.subprocess.Process | None = None
        self._calls: EngineCalls | None = None

    async def start(self) -> None:
        """Return once the engine responds. Raise RuntimeError if it ends before."""
        self._process = await asyncio.create_subprocess_exec(*our_command("engine"), env=self._environment())
        secret, *previous = engine_secrets(self._settings)
        self._calls = EngineCalls(self._target, secret=secret, previous_secrets=previous, tls=self._settings.engine_tls)
        await self._calls.start()
        while True:
            self._check_running()
            try:
                await self._calls.describe()
            except EngineUnavailable:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    def description(self) -> dict[str, Any]:
        """Return the engine's id, address and process."""
        return {"id": self._id, "target": self._target, "pid": self._process.pid if self._process else None}

    async def check(self) -> None:
        """Raise RuntimeError if the engine has ended, EngineUnavailable if it does not respond."""
        self._check_running()
        assert self._calls is not None
        await self._calls.stats()

    async def load(self) -> dict[str, float]:
        """Return how long its queue is, in seconds, and the number of its completions."""
        assert self._calls is not None
        stats = await self._calls.stats()
        return {"queue_seconds": stats.backlog_seconds, "requests": float(stats.running + stats.waiting)}

    async def stop(self) -> None:
        """End the engine; it gives its lease back and finishes its requests within the drain's time."""
        if self._calls is not None:
            await self._calls.close()
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), self._drain_seconds + _KILL_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        await asyncio.to_thread(shutil.rmtree, self._cache, ignore_errors=True)

    def _check_running(self) -> None:
        if self._process is None or self._process.returncode is not None:
            status = None if self._process is None else self._process.returncode
            raise RuntimeError(f"engine {self._id} ended with status {status}; its log says why")

    def _environment(self) -> dict[str, str]:
        ours = {
            "LORAGATE_MODEL": self._settings.model or "",
            "LORAGATE_ENGINE__LISTEN": self._target,
            "LORAGATE_ENGINE__ADVERTISE": self._target,
            "LORAGATE_ENGINE__ID": self._id,
            "LORAGATE_ENGINE__CACHE_DIR": str(self._cache),
            "LORAGATE_DRAIN_SECONDS": str(self._drain_seconds),
        }
        if self._threads is not None:
            ours["LORAGATE_ENGINE__THREADS"] = str(self._threads)
        return {**os.environ, **ours}


def _free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])
