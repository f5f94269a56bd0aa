"""`Idempotency-Key` on the POST routes that create resources."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.tenants import IdempotencyReplyRow
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway


@pytest.fixture
async def store(config: GatewayConfig) -> AsyncIterator[Store]:
    opened = await Store.open(config.database_url, config.blob_url, config.secret_key)
    yield opened
    await opened.close()


def key(text: str) -> dict[str, str]:
    return {"idempotency-key": text}


async def test_a_repeated_request_gets_the_first_response(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        first = await admin.post("/admin/v1/tenants", json={"name": "acme"}, headers=key("a"))
        again = await admin.post("/admin/v1/tenants", json={"weight": 1.0, "name": "acme"}, headers=key("a"))
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.content == again.content
        assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
        url = f"/admin/v1/tenants/{first.json()['id']}/keys"
        keys = [(await admin.post(url, json={"name": "ci"}, headers=key("a b"))).json() for _ in range(3)]
        assert keys[0] == keys[1] == keys[2]
        assert keys[0]["secret"].startswith("lg-")
        assert len((await admin.get(url)).json()["data"]) == 1
        rotated = [
            (await admin.post(f"/admin/v1/keys/{keys[0]['id']}/rotate", headers=key("r"))).json() for _ in range(2)
        ]
        assert rotated[0] == rotated[1]
        assert len((await admin.get(url)).json()["data"]) == 2


async def test_another_request_with_the_same_key_is_rejected(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        created = await admin.post("/admin/v1/tenants", json={"name": "acme"}, headers=key("a"))
        url = f"/admin/v1/tenants/{created.json()['id']}/keys"
        for other in (
            await admin.post("/admin/v1/tenants", json={"name": "other"}, headers=key("a")),
            await admin.post(url, headers=key("a")),
            await admin.post(
                "/admin/v1/tenants", json={"name": "acme", "limits": {"tokens_per_minute": None}}, headers=key("a")
            ),  # lifts a limit that exists by default
        ):
            assert other.status_code == 409
            assert other.json()["error"]["code"] == "idempotency_key_reused"
            assert other.json()["error"]["param"] == "Idempotency-Key"


async def test_failed_work_may_be_tried_again(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        taken = await admin.post("/admin/v1/tenants", json={"name": "first"}, headers=key("a"))
        assert taken.status_code == 409
        assert taken.json()["error"]["code"] == "name_taken"
        await admin.delete(f"/admin/v1/tenants/{gateway.tenant_id}")
        assert (await admin.post("/admin/v1/tenants", json={"name": "first"}, headers=key("a"))).status_code == 201


async def test_of_concurrent_requests_one_works(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
        before = len((await admin.get(url)).json()["data"])
        answers = await asyncio.gather(*(admin.post(url, headers=key("a")) for _ in range(10)))
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
        rejected = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409}
        assert rejected <= {"idempotency_key_in_use"}
        assert len((await admin.get(url)).json()["data"]) == before + 1


async def test_an_upload_becomes_one_version(gateway: Gateway, tmp_path: Path) -> None:
    def files(seed: int) -> dict[str, Any]:
        folder = tiny_model.write_adapter(tmp_path / str(seed), seed=seed)
        return {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}

    async def upload(http: httpx.AsyncClient, seed: int, name: str = "poet") -> httpx.Response:
        return await http.post("/v1/adapters", data={"name": name}, files=files(seed), headers=key("a"))

    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        first, again = await upload(http, 1), await upload(http, 1)
        assert (first.status_code, first.content) == (201, again.content)
        assert (await upload(http, 2)).json()["error"]["code"] == "idempotency_key_reused"
        assert (await upload(http, 1, "bard")).json()["error"]["code"] == "idempotency_key_reused"
        theirs = await upload(other, 2)
        assert theirs.status_code == 201, "a key is its tenant's own"
        assert len((await http.get("/v1/adapters/poet/versions")).json()["data"]) == 1


async def test_the_operators_keys_are_separate_from_tenants(gateway: Gateway) -> None:
    url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
    async with gateway.admin() as admin:
        own = (await admin.post(url, json={"scopes": ["admin"]})).json()
        async with gateway.http(own["secret"]) as tenant:
            made = [await each.post(url, json={"name": "ci"}, headers=key("a")) for each in (admin, tenant)]
    assert [each.status_code for each in made] == [201, 201]
    assert made[0].json()["id"] != made[1].json()["id"]


async def test_the_header_is_documented(gateway: Gateway) -> None:
    async with gateway.http() as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
    for path in ("/v1/adapters", "/admin/v1/tenants", "/admin/v1/keys/{key_id}/rotate"):
        assert "Idempotency-Key" in {parameter["name"] for parameter in paths[path]["post"]["parameters"]}


@pytest.mark.parametrize("bad", ["", "x" * 256, "caf\u00e9"])
async def test_invalid_keys_are_rejected_by_name(gateway: Gateway, bad: str) -> None:
    async with gateway.admin() as admin:
        headers = {b"idempotency-key": bad.encode("latin-1")}
        response = await admin.post("/admin/v1/tenants", json={"name": "acme"}, headers=headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "Idempotency-Key")


async def test_no_secret_is_stored_in_clear_text(gateway: Gateway, store: Store) -> None:
    async with gateway.admin() as admin:
        made = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", headers=key("my-own-key"))).json()
    async with store._database.operator() as session:
        rows = (await session.execute(select(*IdempotencyReplyRow.__table__.columns))).all()
    assert len(rows) == 1
    stored = b"".join(value if isinstance(value, bytes) else str(value).encode() for value in rows[0])
    for text in (made["secret"], made["secret"].rsplit("-", 1)[1], made["id"], "my-own-key"):
        assert text.encode() not in stored
