"""The operator's routes."""

from datetime import UTC, datetime, timedelta

from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID


async def test_tenants(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        created = await admin.post("/admin/v1/tenants", json={"name": "acme", "weight": 2})
        assert created.status_code == 201
        tenant = created.json()
        assert tenant["object"] == "tenant"
        datetime.fromisoformat(tenant["created_at"])
        url = f"/admin/v1/tenants/{tenant['id']}"
        assert (await admin.get(url)).json() == tenant
        patched = (await admin.patch(url, json={"weight": 3})).json()
        assert (patched["name"], patched["weight"]) == ("acme", 3)
        twice = await admin.post("/admin/v1/tenants", json={"name": "acme"})
        assert (twice.status_code, twice.json()["error"]["param"]) == (409, "name")
        names = [each["name"] for each in (await admin.get("/admin/v1/tenants?limit=1")).json()["data"]]
        assert names == ["acme"]
        assert (await admin.delete(url)).json()["deleted"] is True
        assert (await admin.get(url)).status_code == 404


async def test_bodies_are_checked(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        for body, param in (({}, "name"), ({"name": 1}, "name"), ({"name": "a", "x": 1}, "x"), ({"name": ""}, "name")):
            response = await admin.post("/admin/v1/tenants", json=body)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
        for body, param in (
            ({"scopes": ["root"]}, "scopes"),
            ({"expires_at": "tomorrow"}, "expires_at"),
            ({"expires_at": 1}, "expires_at"),
            ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ):
            response = await admin.post(url, json=body)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), body


async def test_keys(gateway: Gateway) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    async with gateway.admin() as admin:
        url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
        created = await admin.post(url, json={"name": "ci", "scopes": ["inference"], "expires_at": tomorrow})
        assert created.status_code == 201
        key = created.json()
        assert key["secret"].startswith(f"lg-{key['id']}-")
        assert key["scopes"] == ["inference"]
        shown = (await admin.get(f"/admin/v1/keys/{key['id']}")).json()
        assert "secret" not in shown
        assert "secret" not in (await admin.get(url)).text
        bare = (await admin.post(url)).json()
        assert bare["scopes"] == ["all"]


async def test_rotation(gateway: Gateway) -> None:
    async def status(key: str) -> int:
        async with gateway.http(key) as http:
            return (await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "x"})).status_code

    async with gateway.admin() as admin:
        old = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys")).json()
        assert await status(old["secret"]) == 200
        kept = await admin.post(f"/admin/v1/keys/{old['id']}/rotate", json={"grace_seconds": 60})
        assert kept.status_code == 201
        new = kept.json()
        assert [await status(key["secret"]) for key in (old, new)] == [200, 200]
        newest = (await admin.post(f"/admin/v1/keys/{new['id']}/rotate")).json()
        assert [await status(key["secret"]) for key in (new, newest)] == [401, 200]
        await admin.delete(f"/admin/v1/keys/{newest['id']}")
        assert await status(newest["secret"]) == 401


async def test_openapi_knows_the_bodies(gateway: Gateway) -> None:
    async with gateway.http() as http:
        document = (await http.get("/openapi.json")).json()
    post = document["paths"]["/v1/chat/completions"]["post"]
    reference = post["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert {"model", "messages", "stream", "top_k"} <= schema["properties"].keys()
    assert "x-loragate-body" not in str(document)
