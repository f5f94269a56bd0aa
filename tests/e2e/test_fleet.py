"""Two real engines behind one gateway: one is killed under streams, and one registers itself."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from ports import free_port
from running_server import RunningServer, clean_environment, client, ok, until, upload

from .conftest import Tiny

pytestmark = pytest.mark.long  # tests/engine/fleet and tests/gateway run fleets without processes in the fast set

PROMPT = list(range(3, 19))
STREAMS, CROWD = 12, 200
LONG = {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def fleet(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    patient = {"LORAGATE_MAX_QUEUE_SECONDS": "600"}  # a crowd waits on a slow machine
    server = RunningServer(tmp_path_factory.mktemp("fleet"), "--model", str(tiny.base), "--engines", "2", **patient)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def key(fleet: RunningServer, tiny: Tiny) -> str:
    key = fleet.add_tenant("acme")
    with client(fleet.base_url, key) as http:
        for name in "ab":
            ok(upload(http, name, tiny.adapters[name]))
    return key


def engines_of(server: RunningServer) -> dict[str, Any]:
    """Return the engines as the operator sees them, by id."""
    with server.admin() as admin:
        return {each["id"]: each for each in ok(admin.get("/admin/v1/engines"))["data"]}


def all_ready(server: RunningServer, *ids: str) -> bool:
    engines = engines_of(server)
    return set(ids) == engines.keys() and all(each["state"] == "ready" for each in engines.values())


def read_stream(server: RunningServer, key: str, model: str, begun: threading.Semaphore) -> tuple[list[str], float]:
    """Return the lines of a stream and the time of its end."""
    body = LONG | {"model": model}
    with client(server.base_url, key) as http, http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        lines: list[str] = []
        for line in response.iter_lines():
            if line and not lines:
                begun.release()
            lines += [line] if line else []
    return lines, monotonic()


def test_both_engines_give_the_same_tokens(fleet: RunningServer, key: str) -> None:
    running = fleet.runtime
    assert [each["id"] for each in running["engines"]] == ["engine-0", "engine-1"]
    assert running["pids"]["engine"] == running["engines"][0]["pid"]
    body = {"model": "a", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}

    def ask(_: int) -> str:
        with client(fleet.base_url, key) as http:
            return str(ok(http.post("/v1/completions", json=body))["choices"][0]["text"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(16)))) == 1
    with fleet.admin() as admin:
        served = [
            sum(row["requests"] for row in ok(admin.get(f"/admin/v1/engines/{id_}/adapters"))["data"])
            for id_ in ("engine-0", "engine-1")
        ]
    assert all(served), served


def test_a_killed_engine_ends_only_its_own_streams(fleet: RunningServer, key: str) -> None:
    begun = threading.Semaphore(0)
    streams: list[Future[tuple[list[str], float]]] = []
    with ThreadPoolExecutor(STREAMS) as threads:
        for n in range(STREAMS):  # one after the other, so that each is placed when the queues are empty
            streams.append(threads.submit(read_stream, fleet, key, "ab"[n % 2], begun))
            assert begun.acquire(timeout=60)
        running = engines_of(fleet)["engine-1"]["requests"]
        victim = fleet.runtime["engines"][1]["pid"]
        killed_at = monotonic()
        os.kill(victim, signal.SIGKILL)
        ended = [stream.result() for stream in streams]
    lost = [(lines, at) for lines, at in ended if "engine_unavailable" in lines[-1]]
    finished = [lines for lines, _ in ended if lines[-1] == "data: [DONE]"]
    assert 0 < running < STREAMS
    assert (len(lost), len(finished)) == (running, STREAMS - running)
    assert max(at for _, at in lost) - killed_at < 2
    assert not any("[DONE]" in line for lines, _ in lost for line in lines)
    with client(fleet.base_url, key) as http:
        assert ok(http.post("/v1/completions", json={"model": "a", "prompt": PROMPT, "max_tokens": 2}))
    until(lambda: fleet.runtime["engines"][1]["pid"] not in (None, victim), 120)
    until(lambda: all_ready(fleet, "engine-0", "engine-1"), 120)


@dataclass
class Scored:
    """A stream with its tokens, and the error that ended it."""

    model: str
    tokens: list[str]
    error: str | None
    at: float


def scored_stream(server: RunningServer, key: str, model: str, length: int, begun: threading.Semaphore) -> Scored:
    body = LONG | {"model": model, "max_tokens": length, "logprobs": 0}
    tokens: list[str] = []
    error = None
    with client(server.base_url, key) as http, http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            error = chunk["error"]["code"] if "error" in chunk else error
            for choice in chunk.get("choices", ()):
                if not tokens:
                    begun.release()
                tokens += choice["logprobs"]["tokens"] if choice["logprobs"] else []
    return Scored(model, tokens, error, monotonic())


def test_two_hundred_streams_when_an_engine_is_killed(fleet: RunningServer, tiny: Tiny) -> None:
    """None fails before its first token, the others end within 2 s, each has the tokens of its adapter, and what is
    billed is what was delivered."""
    key, begun, length = fleet.add_tenant("crowd"), threading.Semaphore(0), 200
    with client(fleet.base_url, key) as http:
        for name in "ab":
            ok(upload(http, name, tiny.adapters[name]))
    alone = {model: scored_stream(fleet, key, model, length, threading.Semaphore(0)) for model in "ab"}
    with ThreadPoolExecutor(CROWD) as threads:
        streams = [threads.submit(scored_stream, fleet, key, "ab"[n % 2], length, begun) for n in range(CROWD)]
        for _ in range(CROWD // 4):
            assert begun.acquire(timeout=60)
        victim = fleet.runtime["engines"][1]["pid"]
        killed_at = monotonic()
        os.kill(victim, signal.SIGKILL)
        ended = [stream.result() for stream in streams]
    lost = [each for each in ended if each.error is not None]
    assert lost
    assert {each.error for each in lost} == {"engine_unavailable"}
    assert all(each.tokens for each in lost)
    assert max(each.at for each in lost) - killed_at < 2
    for each in ended:
        expected = alone[each.model].tokens
        assert each.tokens == expected[: len(each.tokens)]
        assert each.error is not None or len(each.tokens) == length
    delivered = sum(len(each.tokens) for each in [*ended, *alone.values()])
    with client(fleet.base_url, key) as http:
        until(lambda: ok(http.get("/v1/usage"))["totals"]["requests"] == CROWD + 2)
        assert ok(http.get("/v1/usage"))["totals"]["completion_tokens"] == delivered
    until(lambda: fleet.runtime["engines"][1]["pid"] not in (None, victim), 120)
    until(lambda: all_ready(fleet, "engine-0", "engine-1"), 120)


def test_an_engine_registers_serves_and_leaves(fleet: RunningServer, key: str, tiny: Tiny) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "loragate.cli.main", "engine", "--model", str(tiny.base)]
    command += ["--listen", address, "--advertise", address, "--data-dir", str(fleet.data_dir)]
    environment = clean_environment() | {"LORAGATE_ENGINE__ID": "third", "LORAGATE_ENGINE__CACHE_DIR": _cache(fleet)}
    process = subprocess.Popen(command, env=environment)
    try:
        until(lambda: all_ready(fleet, "engine-0", "engine-1", "third"), 120)
        begun = threading.Semaphore(0)
        with ThreadPoolExecutor(STREAMS) as threads:
            # of the base model, which any engine may serve: an adapter stays where it was while one engine is enough
            base = tiny.base.name
            streams = [threads.submit(read_stream, fleet, key, base, begun) for _ in range(STREAMS)]
            for _ in streams:
                assert begun.acquire(timeout=60)
            assert engines_of(fleet)["third"]["requests"]
            process.terminate()
            assert all(stream.result()[0][-1] == "data: [DONE]" for stream in streams), "they finish before it ends"
        assert process.wait(60) == 0
        until(lambda: all_ready(fleet, "engine-0", "engine-1"))
    finally:
        process.kill()
        process.wait()


def _cache(server: RunningServer) -> str:
    folder = Path(server.data_dir) / "third-cache"
    return str(folder)
