"""/admin/v1/engines."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import httpx

from loragate.v1 import engine_pb2 as pb
from tests.gateway.engine_stats import full_stats
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

ROUTES = (
    "/admin/v1/engines",
    "/admin/v1/engines/engine-0",
    "/admin/v1/engines/engine-0/adapters",
    "/admin/v1/engines/engine-0/trace",
)


async def test_only_the_operator_may_read(gateway: Gateway) -> None:
    async with httpx.AsyncClient(base_url=gateway.base_url) as unauthenticated, gateway.http() as tenant:
        for route in ROUTES:
            assert (await unauthenticated.get(route)).status_code == 401
            rejected = await tenant.get(route)
            assert (rejected.status_code, rejected.json()["error"]["code"]) == (403, "admin_key_required")
    assert not gateway.engine.traces_asked


async def test_an_engine(gateway: Gateway, upload: Callable[..., Awaitable[dict[str, Any]]]) -> None:
    adapter = await upload("support")
    ref = pb.AdapterRef(tenant_id=gateway.tenant_id, digest=adapter["digest"])
    stats = gateway.engine.stats = full_stats(ref)
    stats.tenants.add(tenant_id=gateway.tenant_id, running=2, waiting=3)
    stats.tenants.add(tenant_id="tn_gone", running=1)
    async with gateway.admin() as admin:
        listed = (await admin.get("/admin/v1/engines")).json()
        engine = (await admin.get("/admin/v1/engines/engine-0")).json()
        name = (await admin.get(f"/admin/v1/tenants/{gateway.tenant_id}")).json()["name"]
    assert listed["object"] == "list"
    assert [each["id"] for each in listed["data"]] == ["engine-0"]
    assert engine == listed["data"][0]
    assert (engine["object"], engine["state"], engine["model"]) == ("engine", "ready", MODEL_ID)
    assert engine["base_digest"] == gateway.engine.manifest.base_digest
    assert datetime.fromisoformat(engine["started_at"]).timestamp() == stats.started_at
    assert engine["batch"] == {"running": stats.running}
    assert engine["queue"] == {"waiting": stats.waiting, "waiting_for_adapter": stats.waiting_for_adapter}
    assert engine["tenants"] == [
        {"tenant_id": gateway.tenant_id, "name": name, "running": 2, "waiting": 3},
        {"tenant_id": "tn_gone", "name": None, "running": 1, "waiting": 0},
    ]
    assert engine["kv_blocks"] == {"used": stats.kv_blocks_used, "total": stats.kv_blocks_total}
    assert engine["adapter_slots"] == {"used": stats.slots_used, "total": stats.slots_total}
    assert engine["adapter_bytes"]["disk"] == {"used": 10, "total": 20}
    assert engine["step_seconds"] == {"steps": 5, "p50": 0.25, "p90": 0.5, "p99": 0.75}
    assert engine["residents"] == [
        {
            "id": "ad_0000000000000000",
            "tenant_id": gateway.tenant_id,
            "digest": adapter["digest"],
            "versions": [{"name": "support", "version": 1}],
            "slot": 0,
            "running": 1,
            "pinned": True,
        }
    ]


async def test_an_unreachable_engine_is_listed(gateway: Gateway) -> None:
    await gateway.engine.kill()
    async with gateway.admin() as admin, asyncio.timeout(20):
        while (engine := (await admin.get("/admin/v1/engines/engine-0")).json())["state"] != "unreachable":
            await asyncio.sleep(0.02)
        assert engine["model"] == MODEL_ID
        assert engine["kv_blocks"] is None
        assert engine["residents"] == engine["tenants"] == []
        for route in ROUTES[2:]:
            down = await admin.get(route)
            assert (down.status_code, down.json()["error"]["code"]) == (503, "engine_unavailable")


async def test_adapters_page_by_page(gateway: Gateway) -> None:
    refs = [pb.AdapterRef(tenant_id="tn_x", digest=f"sha256:{number}") for number in range(3)]
    gateway.engine.stats = full_stats(*refs)
    rows: list[dict[str, Any]] = []
    async with gateway.admin() as admin:
        more, after = True, ""
        while more:
            page = (await admin.get(f"{ROUTES[2]}?limit=3&after={after}")).json()
            rows += page["data"]
            more, after = page["has_more"], page["last_id"]
        for bad in ("limit=0", "limit=1001", "after=" + "x" * 65):
            assert (await admin.get(f"{ROUTES[2]}?{bad}")).status_code == 400
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert len(rows) == 4
    by_id = {row["id"]: row for row in rows}
    assert by_id["base"]["digest"] is by_id["base"]["mean_queue_seconds"] is None
    assert by_id["ad_" + "0" * 16]["mean_queue_seconds"] == 0.5
    assert by_id["ad_" + "0" * 16]["digest"] == "sha256:0"


async def test_a_trace(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        response = await admin.get(f"{ROUTES[3]}?steps=50")
        for bad in ("-1", "x", "100001"):
            assert (await admin.get(f"{ROUTES[3]}?steps={bad}")).status_code == 400
    assert response.content == gateway.engine.trace
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-disposition"] == 'attachment; filename="loragate-engine-0-trace.json"'
    assert [request.last_steps for request in gateway.engine.traces_asked] == [50]


async def test_there_is_no_other_engine(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        for route in ("engine-1", "engine-1/trace", "engine-1/adapters"):
            assert (await admin.get(f"/admin/v1/engines/{route}")).status_code == 404
