"""Mixed traffic of several tenants for half an hour: memory, open files and tasks of gateway and engine stay bounded.

SOAK_SECONDS=60 pytest -m long tests/e2e/test_soak.py   # a quick look, without the bound on memory
SOAK_SEED=7 …                                           # the same order of actions again
"""

import asyncio
import os
import random
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running_server import RunningServer, client, ok, until, upload

from .conftest import Tiny

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * 3600)]

MODEL = "tiny-llama"
TENANTS = 4
CLIENTS = 3  # of each tenant
SMALL_CACHES = {  # which are full soon, so that later growth is no cache's
    "LORAGATE_ENGINE__ADAPTER_SLOTS": "2",
    "LORAGATE_ENGINE__ADAPTER_HOST_BYTES": str(4 << 20),
    "LORAGATE_ENGINE__KV_CACHE_TOKENS": "8192",
    "LORAGATE_ENGINE__KV_HOST_BYTES": str(4 << 20),
}
WARM_UP = 0.25  # of the time: caches and allocators fill
GROWTH_BYTES = 48 << 20  # afterwards, of a process at rest
MORE_FILES = 8  # pooled connections come and go
MORE_TASKS = 8


@dataclass(frozen=True)
class Usage:
    """What one process uses at rest."""

    rss: int
    files: int
    tasks: int


@pytest.fixture
def server(tiny: Tiny, tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "tasks").mkdir()
    overlay = str(Path(__file__).parent / "soak_overlay")
    environment = {"PYTHONPATH": overlay, "SOAK_TASKS": str(tmp_path / "tasks")}
    running = RunningServer(tmp_path / "data", "--model", str(tiny.base), **environment, **SMALL_CACHES)
    yield running
    running.stop()


class Traffic:
    """One client, which does one thing after the other until `stopping`."""

    def __init__(self, server: RunningServer, key: str, tiny: Tiny, seed: int, done: Counter[str]) -> None:
        self.stopping = asyncio.Event()
        self._server = server
        self._key = key
        self._tiny = tiny
        self._random = random.Random(seed)
        self._done = done
        self._own = f"own-{seed}"
        self._actions = {
            "chat": (6, self._chat),
            "stream": (6, self._stream),
            "stream that is cut": (6, self._cut_stream),
            "request that is cancelled": (4, self._cancel),
            "embedding": (2, self._embed),
            "adapter": (3, self._adapter),
            "file": (2, self._file),
            "connection that is dropped": (3, self._drop),
            "list": (3, self._list),
            "error": (2, self._error),
        }

    async def run(self) -> None:
        headers = {"authorization": f"Bearer {self._key}"}
        names, weights = list(self._actions), [weight for weight, _ in self._actions.values()]
        async with httpx.AsyncClient(base_url=self._server.base_url, headers=headers, timeout=120) as http:
            while not self.stopping.is_set():
                [name] = self._random.choices(names, weights)
                await self._actions[name][1](http)
                self._done[name] += 1

    def _body(self, tokens: int) -> dict[str, Any]:
        prompt = [self._random.randrange(3, 300) for _ in range(self._random.choice((3, 20, 200)))]
        model = self._random.choice((MODEL, "a", "b"))
        return {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}

    async def _chat(self, http: httpx.AsyncClient) -> None:
        content = " ".join(secrets.token_hex(3) for _ in range(self._random.randrange(1, 60)))
        body = {"model": "a", "messages": [{"role": "user", "content": content}], "max_tokens": 8}
        ok(await http.post("/v1/chat/completions", json=body))

    async def _stream(self, http: httpx.AsyncClient, pieces: float = float("inf")) -> None:
        received = 0
        async with http.stream("POST", "/v1/completions", json=self._body(40) | {"stream": True}) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                received += bool(line)
                if received > pieces:
                    return

    async def _cut_stream(self, http: httpx.AsyncClient) -> None:
        await self._stream(http, pieces=self._random.randrange(10))

    async def _cancel(self, http: httpx.AsyncClient) -> None:
        sending = asyncio.ensure_future(http.post("/v1/completions", json=self._body(200)))
        await asyncio.wait({sending}, timeout=self._random.uniform(0, 0.3))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    async def _embed(self, http: httpx.AsyncClient) -> None:
        ok(await http.post("/v1/embeddings", json={"model": "b", "input": ["one", "two three"]}))

    async def _adapter(self, http: httpx.AsyncClient) -> None:
        folder = self._tiny.adapters[self._random.choice("abcd")]
        files = {
            name: (name, (folder / name).read_bytes()) for name in os.listdir(folder) if name.startswith("adapter_")
        }
        ok(await http.post("/v1/adapters", data={"name": self._own}, files=files))
        ok(await http.post("/v1/completions", json=self._body(4) | {"model": self._own}))
        ok(await http.delete(f"/v1/adapters/{self._own}"))

    async def _file(self, http: httpx.AsyncClient) -> None:
        file = ok(
            await http.post(
                "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("f", secrets.token_bytes(50_000))}
            )
        )
        ok(await http.delete(f"/v1/files/{file['id']}"))

    async def _drop(self, http: httpx.AsyncClient) -> None:
        parts = urlsplit(self._server.base_url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9999\r\n\r\n{"
        whole = head % self._key.encode()
        writer.write(whole[: self._random.randrange(len(whole) + 1)])
        await writer.drain()
        writer.close()

    async def _list(self, http: httpx.AsyncClient) -> None:
        for path in ("/v1/models", "/v1/adapters", "/v1/usage", "/v1/files"):
            ok(await http.get(path))

    async def _error(self, http: httpx.AsyncClient) -> None:
        assert (await http.post("/v1/completions", json={"model": "nothing", "prompt": "x"})).status_code == 404
        assert (await http.post("/v1/completions", content=b"{" * 1000)).status_code == 400


def _in_flight(server: RunningServer) -> float:
    with server.admin() as http:
        page = http.get("/metrics").raise_for_status().text
    names = ("loragate_http_requests_in_flight", "loragate_usage_waiting_records")
    return sum(
        each.value for family in text_string_to_metric_families(page) if family.name in names for each in family.samples
    )


def _at_rest(server: RunningServer, tasks: Path) -> dict[str, Usage]:
    """Return what gateway and engine use once nothing is in flight: the least of some seconds."""
    until(lambda: _in_flight(server) <= 1, 120)
    pids = {"gateway": server.runtime["pids"]["gateway"][0], "engine": server.runtime["pids"]["engine"]}
    samples: dict[str, list[Usage]] = {name: [] for name in pids}
    for _ in range(10):
        time.sleep(1)
        for name, pid in pids.items():
            process = psutil.Process(pid)
            samples[name].append(
                Usage(process.memory_info().rss, process.num_fds(), int((tasks / str(pid)).read_text()))
            )
    return {
        name: Usage(
            int(statistics.median(each.rss for each in found)),
            min(each.files for each in found),
            min(each.tasks for each in found),
        )
        for name, found in samples.items()
    }


async def _traffic(server: RunningServer, keys: list[str], tiny: Tiny, seconds: float, seed: int) -> Counter[str]:
    done: Counter[str] = Counter()
    clients = [Traffic(server, keys[i % TENANTS], tiny, seed + i, done) for i in range(TENANTS * CLIENTS)]
    running = [asyncio.create_task(each.run()) for each in clients]
    await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for each in clients:
        each.stopping.set()
    await asyncio.gather(*running)
    return done


def test_memory_files_and_tasks_stay_bounded(
    server: RunningServer, tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "1800"))
    seed = int(os.environ.get("SOAK_SEED", secrets.randbelow(1_000_000)))
    keys = [server.add_tenant(f"tenant-{number}") for number in range(TENANTS)]
    for key in keys:
        with client(server.base_url, key) as http:
            for name in "ab":
                ok(upload(http, name, tiny.adapters[name]))
    pids = dict(server.runtime["pids"])
    asyncio.run(_traffic(server, keys, tiny, WARM_UP * seconds, seed))
    before = _at_rest(server, tmp_path / "tasks")
    done = asyncio.run(_traffic(server, keys, tiny, (1 - WARM_UP) * seconds, seed + 1000))
    after = _at_rest(server, tmp_path / "tasks")
    with capsys.disabled():
        print(f"\nSOAK_SEED={seed} {dict(done)}\nbefore {before}\nafter  {after}")
    assert server.runtime["pids"] == pids, "a process was restarted"
    assert len(done) == 10, "each action was done"
    for name in before:
        if seconds >= 1200:  # in less, the caches of libraries are not full
            assert after[name].rss <= before[name].rss + GROWTH_BYTES, name
        assert after[name].files <= before[name].files + MORE_FILES, name
        assert after[name].tasks <= before[name].tasks + MORE_TASKS, name
