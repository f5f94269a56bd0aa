"""Uploading adapters and sending requests to them."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

Upload = Callable[..., Awaitable[dict[str, Any]]]
MESSAGES = [{"role": "user", "content": "hello"}]


def _files(folder: Path) -> dict[str, tuple[str, bytes]]:
    names = ("adapter_config.json", "adapter_model.safetensors")
    return {name: (name, (folder / name).read_bytes()) for name in names}


async def test_upload_and_generate(gateway: Gateway, upload: Upload) -> None:
    created = await upload("poet")
    assert created["name"] == "poet"
    assert created["version"] == 1
    assert created["status"] == "ready"
    assert created["digest"].startswith("sha256:")
    async with gateway.openai() as client:
        raw = await client.chat.completions.with_raw_response.create(model="poet", messages=MESSAGES)
        stream = await client.chat.completions.with_raw_response.create(model="poet:1", messages=MESSAGES, stream=True)
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("poet@default")
        base = await client.models.retrieve(MODEL_ID)
    named = f"poet:1@{created['digest']}"
    assert raw.headers["x-loragate-adapter"] == named
    assert stream.headers["x-loragate-adapter"] == named
    assert listed == [MODEL_ID, "poet"]
    assert one.id == "poet@default"
    assert base.id == MODEL_ID
    reference = gateway.engine.submits[0].adapter
    assert (reference.tenant_id, reference.digest) == (gateway.tenant_id, created["digest"])


async def test_the_engine_gets_the_uploaded_bytes(gateway: Gateway, upload: Upload, tmp_path: Path) -> None:
    created = await upload("poet")
    async with gateway.openai() as client:
        await client.chat.completions.create(model="poet", messages=MESSAGES)
    received = gateway.engine.adapters[created["digest"]]
    assert received.config_json == (tmp_path / "poet" / "adapter_config.json").read_bytes()
    assert received.tensors == (tmp_path / "poet" / "adapter_model.safetensors").read_bytes()


async def test_versions_aliases_and_deletion(gateway: Gateway, upload: Upload) -> None:
    first, second = await upload("poet", seed=1), await upload("poet", seed=2)
    canary = await upload("poet", seed=3, alias="canary")
    assert [first["version"], second["version"], canary["version"]] == [1, 2, 3]
    async with gateway.http() as http:

        async def answers(model: str) -> str:
            body = {"model": model, "messages": MESSAGES}
            return (await http.post("/v1/chat/completions", json=body)).headers["x-loragate-adapter"]

        assert (await answers("poet")).startswith("poet:2@")
        assert (await answers("poet@canary")).startswith("poet:3@")
        put = await http.put("/v1/adapters/poet/aliases/default", json={"targets": [{"version": 1}]})
        assert put.json()["targets"] == [{"version": 1, "weight": 1}]
        assert (await answers("poet")).startswith("poet:1@")
        assert (await http.get("/v1/adapters/poet/aliases/default")).json()["targets"] == put.json()["targets"]
        aliases = (await http.get("/v1/adapters/poet/aliases")).json()["data"]
        assert [alias["alias"] for alias in aliases] == ["canary", "default"]
        assert (await http.get("/v1/adapters/poet/aliases/none")).status_code == 404
        missing = await http.put("/v1/adapters/poet/aliases/default", json={"targets": [{"version": 9}]})
        assert (missing.status_code, missing.json()["error"]["param"]) == (404, "targets.0.version")

        page = (await http.get("/v1/adapters/poet/versions?limit=2")).json()
        assert [version["version"] for version in page["data"]] == [3, 2]
        assert page["has_more"] is True
        rest = (await http.get(f"/v1/adapters/poet/versions?after={page['last_id']}")).json()
        assert [version["version"] for version in rest["data"]] == [1]

        in_use = await http.delete("/v1/adapters/poet/versions/1")
        assert (in_use.status_code, in_use.json()["error"]["code"]) == (409, "version_in_use")
        assert (await http.delete("/v1/adapters/poet/versions/2")).json()["deleted"] is True
        assert (await http.get("/v1/adapters/poet/versions/2")).status_code == 404
        assert (await http.delete("/v1/adapters/poet")).json()["deleted"] is True
        assert (await http.get("/v1/adapters")).json() == {
            "object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None
        }  # fmt: skip
        gone = await http.post("/v1/chat/completions", json={"model": "poet", "messages": MESSAGES})
        assert gone.json()["error"]["code"] == "model_not_found"


async def test_pages_of_adapters(gateway: Gateway, upload: Upload) -> None:
    for number in range(3):
        await upload(f"a{number}")
    async with gateway.http() as http:
        first = (await http.get("/v1/adapters?limit=2")).json()
        second = (await http.get(f"/v1/adapters?limit=2&after={first['last_id']}")).json()
    assert [adapter["name"] for adapter in first["data"]] == ["a2", "a1"]
    assert first["has_more"] is True
    assert first["first_id"] == first["data"][0]["id"]
    assert [adapter["name"] for adapter in second["data"]] == ["a0"]
    assert second["has_more"] is False


async def test_downloaded_files_equal_the_uploaded_ones(gateway: Gateway, upload: Upload, tmp_path: Path) -> None:
    await upload("poet")
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            url = f"/v1/adapters/poet/versions/1/files/{name}"
            response = await http.get(url)
            assert response.status_code == 200
            assert response.content == (tmp_path / "poet" / name).read_bytes()
            assert (await other.get(url)).status_code == 404
        odd = await http.get("/v1/adapters/poet/versions/1/files/..%2f..%2floragate.db")
    assert odd.status_code in {400, 404}


async def test_a_broken_adapter_names_the_tensor(gateway: Gateway, tmp_path: Path) -> None:
    poisoned = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"
    folder = tiny_model.write_adapter(tmp_path / "bad", poison=poisoned)
    async with gateway.http() as http:
        response = await http.post("/v1/adapters", data={"name": "bad"}, files=_files(folder))
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert poisoned in error["param"]
        assert (await http.get("/v1/adapters/bad")).status_code == 404


async def test_a_wrong_shape_names_the_tensor(gateway: Gateway, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "bad", rank=4)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
    async with gateway.http() as http:
        response = await http.post("/v1/adapters", data={"name": "bad"}, files=_files(folder))
    assert response.status_code == 400
    assert "lora_" in response.json()["error"]["message"]


async def test_field_names_of_the_files_are_ignored(gateway: Gateway, tmp_path: Path) -> None:
    files = _files(tiny_model.write_adapter(tmp_path / "a"))
    under_one_name = [("files", (f"C:\\somewhere\\{name}", data)) for name, data in files.values()]
    async with gateway.http() as http:
        response = await http.post("/v1/adapters", data={"name": "a"}, files=under_one_name)
    assert response.status_code == 201, response.text


@pytest.mark.parametrize(
    ("data", "files", "param"),
    [
        ({"name": "a"}, {"adapter_config.json": b"{}"}, "adapter_model.safetensors"),
        ({"name": "a"}, {"adapter_model.safetensors": b""}, "adapter_config.json"),
        ({}, {"adapter_config.json": b"{}", "adapter_model.safetensors": b""}, "name"),
        ({"name": "a", "url": "http://x"}, {"adapter_config.json": b"{}"}, "url"),
        ({"name": "a"}, {"adapter_model.bin": b"x"}, "adapter_model.bin"),
        ({"name": ["a", "b"]}, {"adapter_config.json": b"{}"}, "name"),
        ({"name": "x" * 2000}, {"adapter_config.json": b"{}"}, "name"),
        ({"name": "a"}, {"adapter_config.json": b" " * (1 << 21)}, "adapter_config.json"),
        ({"name": MODEL_ID}, None, "name"),
        ({"name": "a:b"}, None, "name"),
        ({"name": "a", "alias": "7"}, None, "alias"),
    ],
)
async def test_invalid_forms_are_rejected(
    gateway: Gateway, tmp_path: Path, data: dict[str, Any], files: dict[str, bytes] | None, param: str
) -> None:
    parts = _files(tiny_model.write_adapter(tmp_path / "a")) if files is None else files
    async with gateway.http() as http:
        response = await http.post("/v1/adapters", data=data, files=parts)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param
        assert (await http.get("/v1/adapters")).json()["data"] == []


async def test_bodies_that_are_not_forms_are_rejected(gateway: Gateway) -> None:
    head = {"content-type": "multipart/form-data; boundary=x"}
    cut = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\na'
    async with gateway.http() as http:
        json_body = await http.post("/v1/adapters", content=b"{}", headers={"content-type": "text/json"})
        broken = await http.post("/v1/adapters", content=cut, headers=head)
        empty = await http.post("/v1/adapters", content=b"", headers=head)
    assert json_body.status_code == 415
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_form")
    assert (empty.status_code, empty.json()["error"]["code"]) == (400, "invalid_form")


async def test_nothing_is_left_in_the_spool(gateway: Gateway, upload: Upload) -> None:
    await upload("poet")
    await gateway.until_nothing_is_spooled()


async def test_adapters_are_found_by_description_and_tags(gateway: Gateway, tmp_path: Path) -> None:
    files = _files(tiny_model.write_adapter(tmp_path / "a"))
    async with gateway.http() as http, gateway.http(gateway.other_key) as other, gateway.admin() as admin:
        said = {"tags": "verse, team:sea ,", "description": "Answers in 5-7-5."}
        assert (await http.post("/v1/adapters", data={"name": "poet", **said}, files=files)).status_code == 201
        assert (await http.post("/v1/adapters", data={"name": "clerk"}, files=files)).status_code == 201
        assert (await other.post("/v1/adapters", data={"name": "poet-2"}, files=files)).status_code == 201
        changed = (await http.patch("/v1/adapters/clerk", json={"tags": ["team:sea"], "description": "Dry."})).json()
        assert (changed["tags"], changed["description"]) == (["team:sea"], "Dry.")

        async def names(client: Any, query: str) -> list[str]:
            answer = await client.get(query)
            assert answer.status_code == 200, answer.text
            return [adapter["name"] for adapter in answer.json()["data"]]

        assert await names(http, "/v1/adapters?search=7-5.") == ["poet"]
        assert await names(http, "/v1/adapters?tag=team:sea") == ["clerk", "poet"]
        assert await names(http, "/v1/adapters?tag=team:sea&tag=verse") == ["poet"]
        assert await names(http, "/v1/adapters?search=dry&tag=verse") == []
        assert await names(admin, "/admin/v1/adapters?search=POE") == ["poet-2", "poet"]
        assert await names(admin, f"/admin/v1/adapters?search=poe&tenant={gateway.tenant_id}") == ["poet"]
        whole = (await admin.get("/admin/v1/adapters?limit=1&search=verse")).json()
        assert (whole["data"][0]["tenant_id"], whole["data"][0]["tags"]) == (gateway.tenant_id, ["team:sea", "verse"])
        for query, param in (("search=" + "x" * 101, "search"), ("tag=", "tag"), ("tag=a&" * 9, "tag")):
            for client, path in ((http, "/v1/adapters"), (admin, "/admin/v1/adapters")):
                rejected = await client.get(f"{path}?{query}")
                assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, param), query
        rejected = await http.patch("/v1/adapters/clerk", json={"tags": ["a,b"]})
        assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "tags")


async def test_a_tenant_administrator_lists_its_own_adapters(gateway: Gateway, upload: Upload) -> None:
    await upload("poet")
    async with gateway.admin() as admin:
        tenants = (await admin.get("/admin/v1/tenants")).json()["data"]
        for tenant in tenants:
            made = await admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"scopes": ["admin"]})
            async with gateway.http(made.json()["secret"]) as own:
                listed = (await own.get(f"/admin/v1/adapters?tenant={gateway.tenant_id}")).json()["data"]
                listed += (await own.get("/admin/v1/adapters?search=poet")).json()["data"]
            assert [adapter["name"] for adapter in listed] == ["poet"] * 2 * (tenant["id"] == gateway.tenant_id)
