"""What /readyz reports of parts without which requests are still served."""

import asyncio
import json
from importlib.metadata import version

import httpx

from tests.gateway.running_gateway import Gateway


async def test_a_degraded_part_is_named_and_does_not_prevent_readiness(gateway: Gateway) -> None:
    file = gateway.config.data_dir / "runtime.json"
    async with gateway.http() as http:
        alone = await http.get("/readyz")
        assert (alone.status_code, alone.json()["degraded"]) == (200, {})
        assert "finetune" not in alone.json()["parts"]
        file.write_text(json.dumps({"optional": {"finetune": "ended with status 1", "panel": None}}))
        one_down = await http.get("/readyz")
        file.write_text(json.dumps({"optional": {"finetune": None, "panel": "ended with signal SIGKILL"}}))
        other_down = await http.get("/readyz")
        file.write_text("half a fi")
        broken = await http.get("/readyz")
    assert (one_down.status_code, one_down.json()["status"]) == (200, "ready")
    assert one_down.json()["degraded"] == {"finetune": "ended with status 1"}
    parts = one_down.json()["parts"]
    assert (parts["finetune"], parts["panel"], parts["engine"]) == ("degraded", "ok", "ok")
    assert (other_down.status_code, other_down.json()["degraded"]) == (200, {"panel": "ended with signal SIGKILL"})
    assert other_down.json()["parts"]["panel"] == "degraded"
    assert broken.status_code == 200


async def test_the_probes_of_other_servers(gateway: Gateway) -> None:
    async with httpx.AsyncClient(base_url=gateway.base_url) as http:
        for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
            assert (await http.request(method, path)).status_code == 200
        found = (await http.get("/version")).json()
        assert found == {"version": version("loragate")}
        await gateway.engine.kill()
        for _ in range(200):
            answer = await http.get("/health")
            if answer.status_code == 503:
                break
            await asyncio.sleep(0.05)
        assert answer.json()["error"]["code"] == "engine_unavailable"
        assert (await http.post("/ping")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
