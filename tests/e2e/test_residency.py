"""The operator's placements with a real engine and two gateway workers survive restarts."""

import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from redis_server import RedisServer
from running_server import RunningServer, client, ok, until, upload

from .conftest import Tiny
from .workers import PROMPT, Workers

pytestmark = pytest.mark.long

STREAM = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def workers(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, redis_of_session: RedisServer) -> Iterator[Workers]:
    options = ("--model", str(tiny.base), "--workers", "2")
    environment = {"LORAGATE_REDIS_URL": redis_of_session.url, "LORAGATE_ENGINE__ADAPTER_SLOTS": "3"}
    server = RunningServer(tmp_path_factory.mktemp("residency"), *options, **environment)
    yield Workers(server, redis_of_session)
    assert server.stop() == 0


@pytest.fixture
def tenant(workers: Workers, tiny: Tiny) -> Iterator[httpx.Client]:
    """A server with the four tiny adapters."""
    with client(workers.server.base_url, workers.tenant().key) as http:
        for name, folder in tiny.adapters.items():
            ok(upload(http, name, folder))
        yield http


def adapter(workers: Workers, tenant: httpx.Client, name: str) -> Any:
    """Return the adapters as the operator sees them."""
    wanted = ok(tenant.get(f"/v1/adapters/{name}"))["id"]
    with workers.server.admin() as admin:
        (found,) = [each for each in ok(admin.get("/admin/v1/adapters"))["data"] if each["id"] == wanted]
    return found


def place(workers: Workers, tenant: httpx.Client, name: str, placement: str | None) -> None:
    with workers.server.admin() as admin:
        found = adapter(workers, tenant, name)
        ok(admin.patch(f"/admin/v1/adapters/{found['id']}", json={"placement": placement}))


def is_held(workers: Workers, tenant: httpx.Client, name: str, tier: str, *, pinned: bool = False) -> bool:
    held = adapter(workers, tenant, name)["held"]
    return held == [{"engine_id": "engine-0", "version": 1, "tier": tier, "pinned": pinned}]


def test_pinned_and_prefetched_adapters_survive_restarts_without_a_request(
    workers: Workers, tenant: httpx.Client
) -> None:
    place(workers, tenant, "a", "pinned")
    place(workers, tenant, "b", "prefetched")
    until(lambda: is_held(workers, tenant, "a", "device", pinned=True))
    for name in "cdcd":
        ok(tenant.post("/v1/completions", json={"model": name, "prompt": PROMPT, "max_tokens": 2}))
    # A busy engine may not report its adapters within a second.
    until(lambda: is_held(workers, tenant, "a", "device", pinned=True))

    engine = workers.server.runtime["pids"]["engine"]
    shutil.rmtree(workers.server.data_dir / "engine-cache" / "adapters")  # an upload makes the engine load it once
    os.kill(engine, signal.SIGKILL)
    until(lambda: workers.server.runtime["pids"]["engine"] != engine, 120)
    until(lambda: is_held(workers, tenant, "a", "device", pinned=True), 120)
    until(lambda: is_held(workers, tenant, "b", "disk"))
    assert adapter(workers, tenant, "c")["held"] == []
    with workers.server.admin() as admin:  # the responding worker may have just found the engine again
        until(lambda: admin.get("/admin/v1/engines/engine-0/adapters").is_success)
        served = ok(admin.get("/admin/v1/engines/engine-0/adapters"))["data"]
    assert not [row for row in served if row["requests"]], "it was never requested"

    for worker in list(workers.pids):
        os.kill(worker, signal.SIGKILL)
    until(lambda: len(workers.pids) == 2 and _answers(workers), 120)
    until(lambda: is_held(workers, tenant, "a", "device", pinned=True), 120)
    place(workers, tenant, "a", None)
    until(lambda: not adapter(workers, tenant, "a")["held"][0]["pinned"])
    place(workers, tenant, "b", None)


def _answers(workers: Workers) -> bool:
    try:
        return httpx.get(workers.server.base_url + "/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_all_workers_report_the_same(workers: Workers, tenant: httpx.Client) -> None:
    place(workers, tenant, "a", "pinned")
    until(lambda: is_held(workers, tenant, "a", "device", pinned=True))
    reported: dict[int, str] = {}

    def all_reported() -> bool:
        with client(workers.server.base_url, tenant.headers["authorization"].removeprefix("Bearer ")) as fresh:
            answer = fresh.get("/v1/adapters/a")
            reported[workers.worker_of(answer)] = ok(answer)["residency"]
        return reported == dict.fromkeys(workers.pids, "device")

    until(all_reported)
    place(workers, tenant, "a", None)


def test_a_deleted_adapter_leaves_every_tier_after_its_last_request(workers: Workers, tenant: httpx.Client) -> None:
    digest = ok(tenant.get("/v1/adapters/c/versions/1"))["digest"]
    disk = workers.server.data_dir / "engine-cache" / "adapters" / adapter(workers, tenant, "c")["tenant_id"]
    files = disk / digest.removeprefix("sha256:")
    with tenant.stream("POST", "/v1/completions", json=STREAM | {"model": "c"}) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert files.exists()
        ok(tenant.delete("/v1/adapters/c"))
        gone = tenant.post("/v1/completions", json={"model": "c", "prompt": PROMPT, "max_tokens": 1})
        assert gone.status_code == 404
        assert [line for line in lines if line][-1] == "data: [DONE]"
    until(lambda: not files.exists())
    with workers.server.admin() as admin:
        engine = ok(admin.get("/admin/v1/engines/engine-0"))
    assert digest not in [resident["digest"] for resident in engine["residents"]]
