"""The operator's keys for operators and programs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.gateway.running_gateway import Gateway

URL = "/admin/v1/admin-keys"


async def created(gateway: Gateway, name: str) -> dict[str, Any]:
    async with gateway.admin() as admin:
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        answer = await admin.post(URL, json={"name": name, "expires_at": tomorrow}, headers={"idempotency-key": name})
        again = await admin.post(URL, json={"name": name, "expires_at": tomorrow}, headers={"idempotency-key": name})
    assert answer.status_code == 201
    assert answer.json() == again.json(), "once for each idempotency key"
    key: dict[str, Any] = answer.json()
    assert key["secret"].startswith(f"lg-{key['id']}-")
    return key


async def test_their_life(gateway: Gateway) -> None:
    alice, pipeline = await created(gateway, "alice"), await created(gateway, "pipeline")
    assert gateway.services is not None
    async with gateway.http(alice["secret"]) as http, gateway.http(pipeline["secret"]) as other:
        listed = (await http.get(URL)).json()["data"]
        assert [key["id"] for key in listed] == [pipeline["id"], alice["id"]]
        assert not any("secret" in key for key in listed)
        assert (await http.post("/admin/v1/tenants", json={"name": "acme"})).status_code == 201
        assert (await http.get("/v1/models")).status_code == 403
        event = (await http.get("/admin/v1/audit?limit=1")).json()["data"][0]
        assert (event["action"], event["actor"]) == ("tenant.create", f"admin_key:{alice['id']}")

        assert (await other.get("/admin/v1/tenants")).status_code == 200  # now it is cached
        deleted = await http.delete(f"{URL}/{pipeline['id']}")
        assert deleted.json() == {"id": pipeline["id"], "object": "admin_key", "deleted": True}
        assert (await other.get("/admin/v1/tenants")).status_code == 401, "at once"
        assert (await http.get(f"{URL}/{pipeline['id']}")).json()["revoked_at"] is not None
        await gateway.services.authenticator._use.write()
        assert (await http.get(f"{URL}/{alice['id']}")).json()["last_used_at"] is not None


async def test_what_is_wrong_is_named(gateway: Gateway) -> None:
    async with gateway.admin() as admin, gateway.http() as tenant:
        for body, param in (({}, "name"), ({"name": ""}, "name"), ({"name": "a", "expires_at": "now"}, "expires_at")):
            answer = await admin.post(URL, json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        for method in ("GET", "DELETE"):
            missing = await admin.request(method, f"{URL}/missing")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "key_not_found")
        assert (await tenant.post(URL, json={"name": "mine"})).status_code == 403
