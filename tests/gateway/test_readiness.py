"""What /readyz reports of parts without which requests are still served."""

import json

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
