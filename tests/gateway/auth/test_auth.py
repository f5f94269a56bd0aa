"""Keys and scopes. For the permissions of each route see test_roles.py."""

import logging

import httpx
import openai
import pytest

from tests.gateway.running_gateway import ADMIN_KEY, Gateway
from tests.gateway.tiny_model import MODEL_ID


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Basic abc", "Bearer lg-a-b", "Bearer " + "x" * 5000, "Bearer ' OR 1=1 --"],
)
async def test_no_key(gateway: Gateway, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    async with httpx.AsyncClient(base_url=gateway.base_url) as http:
        for url in ("/v1/models", "/v1/adapters", "/admin/v1/tenants"):
            response = await http.get(url, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_openai_sees_an_authentication_error(gateway: Gateway) -> None:
    async with gateway.openai("lg-wrong-key") as client:
        with pytest.raises(openai.AuthenticationError) as rejected:
            await client.models.list()
    assert rejected.value.code == "invalid_api_key"


async def test_admin_and_tenant_keys_do_not_mix(gateway: Gateway) -> None:
    async with gateway.admin() as admin, gateway.http() as tenant:
        on_tenant_route = await admin.get("/v1/models")
        on_admin_route = await tenant.get("/admin/v1/tenants")
    assert on_tenant_route.status_code == on_admin_route.status_code == 403
    assert "has no tenant" in on_tenant_route.json()["error"]["message"]
    assert "needs the admin key" in on_admin_route.json()["error"]["message"]


async def test_scopes(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
        key = (await admin.post(url, json={"scopes": ["adapters:read"]})).json()
    async with gateway.http(key["secret"]) as http:
        assert (await http.get("/v1/adapters")).status_code == 200
        for rejected in (
            await http.post("/v1/chat/completions", json={}),
            await http.delete("/v1/adapters/a"),
            await http.get("/v1/models"),
        ):
            assert rejected.status_code == 403
            assert rejected.json()["error"]["code"] == "insufficient_scope"


async def test_a_key_revoked_in_this_process_is_rejected_at_once(gateway: Gateway) -> None:
    async with gateway.admin() as admin, gateway.openai() as client:
        await client.models.list()  # now it is cached
        keys = (await admin.get(f"/admin/v1/tenants/{gateway.tenant_id}/keys")).json()["data"]
        deleted = await admin.delete(f"/admin/v1/keys/{keys[0]['id']}")
        assert deleted.json()["deleted"] is True
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_logs_contain_no_keys_prompts_or_paths(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="loragate")
    async with gateway.openai() as client, gateway.http() as http:
        await client.completions.create(model=MODEL_ID, prompt="a secret prompt")
        await http.get("/v1/a-secret-path")
    lines = [record.getMessage() for record in caplog.records if record.name == "loragate.access"]
    assert any('"route":"/v1/completions"' in line and f'"tenant_id":"{gateway.tenant_id}"' in line for line in lines)
    assert any('"route":"unmatched"' in line for line in lines)
    for secret in ("secret", gateway.key, ADMIN_KEY):
        assert secret not in caplog.text
