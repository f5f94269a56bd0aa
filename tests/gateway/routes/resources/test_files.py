"""Files and uploads, used through OpenAI's client."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import openai
import pytest

from loragate.adapter_store.files.repository import FileRepository
from loragate.adapter_store.store import Store
from loragate.gateway.operations import files as file_operations
from tests.attacks.raw_http import exchange, head
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


async def test_a_file_round_trips(gateway: Gateway) -> None:
    lines = b'{"messages": []}\n' * 100_000
    client = gateway.openai()
    file = await client.files.create(file=("train.jsonl", lines), purpose="fine-tune")
    assert (file.object, file.filename, file.purpose, file.status) == ("file", "train.jsonl", "fine-tune", "processed")
    assert (file.bytes, file.expires_at) == (len(lines), None)
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == lines
    assert [each.id async for each in client.files.list()] == [file.id]
    gone = await client.files.delete(file.id)
    assert (gone.id, gone.deleted, gone.object) == (file.id, True, "file")
    for ask in (client.files.retrieve(file.id), client.files.content(file.id), client.files.delete(file.id)):
        with pytest.raises(openai.NotFoundError):
            await ask
    await gateway.until_nothing_is_spooled()


async def test_lists_in_pages(gateway: Gateway) -> None:
    client = gateway.openai()
    made = [(await client.files.create(file=("a", b"x"), purpose="fine-tune")).id for _ in range(3)]
    assert [each.id async for each in client.files.list(limit=1)] == made[::-1]
    assert [each.id async for each in client.files.list(limit=2, order="asc")] == made
    assert [each.id async for each in client.files.list(purpose="adapter")] == []
    assert [each.id async for each in client.files.list(after=made[1])] == [made[0]]


async def test_a_file_may_expire(gateway: Gateway) -> None:
    client = gateway.openai()
    after: Any = {"anchor": "created_at", "seconds": 3600}
    file = await client.files.create(file=("a", b"x"), purpose="fine-tune", expires_after=after)
    assert file.expires_at == file.created_at + 3600
    for wrong, param in (({"anchor": "now", "seconds": 3600}, "anchor"), ({**after, "seconds": 5}, "seconds")):
        with pytest.raises(openai.BadRequestError) as rejected:
            await client.files.create(file=("a", b"x"), purpose="fine-tune", expires_after=wrong)  # type: ignore[arg-type]
        assert rejected.value.param == f"expires_after.{param}"


async def test_parts_by_the_official_client(gateway: Gateway, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    path = tmp_path / "train.jsonl"
    path.write_bytes(content)
    client = gateway.openai()
    md5 = hashlib.md5(content).hexdigest()
    upload = await client.uploads.upload_file_chunked(
        file=path, mime_type="application/jsonl", purpose="fine-tune", part_size=100_000, md5=md5
    )
    assert (upload.object, upload.status, upload.bytes) == ("upload", "completed", len(content))
    assert upload.file is not None
    assert upload.file.filename == "train.jsonl"
    assert (await client.files.content(upload.file.id)).content == content
    await gateway.until_nothing_is_spooled()


async def test_parts_in_any_order_concurrently_and_repeated(gateway: Gateway) -> None:
    client = gateway.openai()
    facts: Any = {"filename": "f", "purpose": "fine-tune", "mime_type": "text/plain"}
    upload = await client.uploads.create(bytes=9, **facts)
    assert (upload.status, upload.file) == ("pending", None)
    assert upload.expires_at == upload.created_at + 3600
    sent = [b"ghi", b"abc", b"def", b"abc"]
    parts = await asyncio.gather(*(client.uploads.parts.create(upload.id, data=part) for part in sent))
    assert {(part.object, part.upload_id) for part in parts} == {("upload.part", upload.id)}
    ids = [parts[1].id, parts[2].id, parts[0].id]
    with pytest.raises(openai.BadRequestError) as rejected:
        await client.uploads.complete(upload.id, part_ids=ids, md5="0" * 32)
    assert (rejected.value.param, rejected.value.code) == ("md5", "md5_mismatch")
    done = await client.uploads.complete(upload.id, part_ids=ids, md5=hashlib.md5(b"abcdefghi").hexdigest())
    assert done.file is not None
    assert await client.uploads.complete(upload.id, part_ids=ids) == done, "the answer was lost on its way"
    assert (await client.files.content(done.file.id)).content == b"abcdefghi"
    with pytest.raises(openai.ConflictError):
        await client.uploads.parts.create(upload.id, data=b"x")
    cancelled = await client.uploads.cancel((await client.uploads.create(bytes=1, **facts)).id)
    assert cancelled.status == "cancelled"


async def test_an_interrupted_client_learns_which_parts_arrived(gateway: Gateway) -> None:
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "text/plain", "bytes": 6}
    async with gateway.http() as http:
        upload = (await http.post("/v1/uploads", json=facts)).json()
        url = f"/v1/uploads/{upload['id']}"
        part = (await http.post(f"{url}/parts", files={"data": b"abc"})).json()
        assert (await http.get(f"{url}/parts")).json()["data"] == [part]
        assert part["bytes"] == 3
        assert (await http.get(url)).json()["status"] == "pending"


async def test_an_adapter_from_parts(gateway: Gateway, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "poet")
    config, tensors = ((folder / name).read_bytes() for name in (CONFIG, TENSORS))
    client = gateway.openai()
    half = len(tensors) // 2
    purpose: Any = "adapter"
    file = await client.files.create(file=(CONFIG, config), purpose=purpose)
    assert file.expires_at == file.created_at + 24 * 3600
    upload = await client.uploads.create(bytes=len(tensors), filename=TENSORS, purpose=purpose, mime_type="a/b")
    parts = [await client.uploads.parts.create(upload.id, data=part) for part in (tensors[half:], tensors[:half])]
    done = await client.uploads.complete(upload.id, part_ids=[part.id for part in parts[::-1]])
    assert done.file is not None
    async with gateway.http() as http:
        body = {"name": "poet", "alias": "canary", "config_file_id": file.id, "tensors_file_id": done.file.id}
        first = await http.post("/v1/adapters", json=body, headers={"idempotency-key": "k"})
        again = await http.post("/v1/adapters", json=body, headers={"idempotency-key": "k"})
        assert first.status_code == again.status_code == 201, first.text
        assert (first.json()["version"], again.json()["version"]) == (1, 1)
        assert "canary" in (await http.get("/v1/adapters/poet")).json()["aliases"]
        for name, sent in ((CONFIG, config), (TENSORS, tensors)):
            assert (await http.get(f"/v1/adapters/poet/versions/1/files/{name}")).content == sent
        text = {"name": "poet", "adapter_config": config.decode(), "tensors_file_id": done.file.id}
        assert (await http.post("/v1/adapters", json=text)).json()["version"] == 2
    await gateway.until_nothing_is_spooled()


async def test_files_that_are_no_adapter_are_rejected(gateway: Gateway) -> None:
    client = gateway.openai()
    data = (await client.files.create(file=("a", b"x"), purpose="fine-tune")).id
    adapter: Any = "adapter"
    file = (await client.files.create(file=("a", b"x"), purpose=adapter)).id
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"name": "a", "adapter_config": "{}", "tensors_file_id": "file-x"}, 404, "tensors_file_id"),
        ({"name": "a", "config_file_id": "file-x", "tensors_file_id": file}, 404, "config_file_id"),
        ({"name": "a", "adapter_config": "{}", "tensors_file_id": data}, 400, "tensors_file_id"),
        ({"name": "a", "adapter_config": "{}", "tensors_file_id": file}, 400, "adapter_config.json"),
        ({"name": "a", "tensors_file_id": file}, 400, "adapter_config"),
        ({"name": "a", "adapter_config": "{}", "config_file_id": file, "tensors_file_id": file}, 400, "adapter_config"),
        ({"name": "a", "adapter_config": {}, "tensors_file_id": file}, 400, "adapter_config"),
        ({"adapter_config": "{}", "tensors_file_id": file}, 400, "name"),
    ]
    async with gateway.http() as http:
        for body, status, param in cases:
            answer = await http.post("/v1/adapters", json=body)
            assert answer.status_code == status, answer.text
            assert (answer.json()["error"]["param"] or "").startswith(param), answer.text
        assert (await http.get("/v1/adapters")).json()["data"] == []


@pytest.mark.parametrize(
    ("data", "files", "param"),
    [
        ({"purpose": "fine-tune"}, {}, None),
        ({}, {"file": ("a", b"x")}, "purpose"),
        ({"purpose": "assistants"}, {"file": ("a", b"x")}, "purpose"),
        ({"purpose": "fine-tune-results"}, {"file": ("a", b"x")}, "purpose"),
        ({"purpose": "fine-tune", "more": "x"}, {"file": ("a", b"x")}, "more"),
        ({"purpose": "fine-tune"}, {"file": ("x" * 300, b"x")}, "filename"),
    ],
)
async def test_invalid_forms_are_rejected(gateway: Gateway, data: Any, files: Any, param: str | None) -> None:
    async with gateway.http() as http:
        answer = await http.post("/v1/files", data=data, files=files)
        assert answer.status_code in (400, 415), answer.text
        assert param is None or answer.json()["error"]["param"] == param, answer.text
        assert (await http.get("/v1/files")).json()["data"] == []


@pytest.mark.parametrize(
    ("more", "status", "param"),
    [
        ({"purpose": "vision"}, 400, "purpose"),
        ({"bytes": 0}, 400, "bytes"),
        ({"bytes": 1 << 50}, 413, "bytes"),
        ({"purpose": "fine-tune", "bytes": (1 << 30) + 1}, 413, "bytes"),
        ({"filename": ""}, 400, "filename"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "expires_after.seconds"),
    ],
)
async def test_invalid_uploads_are_rejected(gateway: Gateway, more: Any, status: int, param: str) -> None:
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "text/plain", "bytes": 6}
    async with gateway.http() as http:
        answer = await http.post("/v1/uploads", json={**facts, **more})
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


async def test_a_key_sees_the_files_of_its_scopes(gateway: Gateway) -> None:
    assert gateway.services is not None
    keys = {}
    async with gateway.services.store.admin(write=True) as admin:
        for scope in ("finetune", "adapters:write"):
            keys[scope] = (await admin.keys.create(gateway.tenant_id, scopes=[scope])).secret
    tuner, writer = (gateway.openai(key) for key in keys.values())
    adapter: Any = "adapter"
    data = await tuner.files.create(file=("a", b"x"), purpose="fine-tune")
    file = await writer.files.create(file=("a", b"x"), purpose=adapter)
    for client, purpose in ((tuner, adapter), (writer, "fine-tune")):
        with pytest.raises(openai.PermissionDeniedError):
            await client.files.create(file=("a", b"x"), purpose=purpose)
        with pytest.raises(openai.PermissionDeniedError):
            await client.uploads.create(bytes=1, filename="a", purpose=purpose, mime_type="a/b")
    assert [each.id async for each in tuner.files.list()] == [data.id]
    assert [each.id async for each in writer.files.list()] == [file.id]
    with pytest.raises(openai.NotFoundError):
        await tuner.files.retrieve(file.id)
    with pytest.raises(openai.NotFoundError):
        await writer.files.delete(data.id)


async def test_too_large_requests_are_rejected_before_their_body(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": {"max_storage_bytes": 1 << 20}})
    for url in ("/v1/files", "/v1/adapters"):
        answer = await exchange(gateway, announcing(gateway, url, 300 << 20))
        assert (answer.status, answer.code) == (409, "quota_exceeded")


def announcing(gateway: Gateway, url: str, size: int) -> bytes:
    """Send the head of a form without a body."""
    start = head(gateway, url).replace(b"application/json", b"multipart/form-data; boundary=b")
    return start + b"Content-Length: %d\r\n\r\n" % size


async def test_a_post_with_an_idempotency_key_is_executed_once(gateway: Gateway) -> None:
    facts = {"filename": "f", "purpose": "fine-tune", "mime_type": "text/plain", "bytes": 3}
    async with gateway.http() as http:

        async def twice(url: str, **request: Any) -> Any:
            answers = [await http.post(url, headers={"idempotency-key": f"key of {url}"}, **request) for _ in range(2)]
            assert answers[0].json() == answers[1].json()
            assert answers[1].headers["idempotent-replayed"] == "true"
            return answers[0].json()

        await twice("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"abc")})
        upload = await twice("/v1/uploads", json=facts)
        await twice(f"/v1/uploads/{upload['id']}/parts", files={"data": b"abc"})
        assert len((await http.get(f"/v1/uploads/{upload['id']}/parts")).json()["data"]) == 1
        assert len((await http.get("/v1/files")).json()["data"]) == 1


async def test_unreadable_content_is_reported_before_the_first_byte(gateway: Gateway) -> None:
    client = gateway.openai()
    file = await client.files.create(file=("a", b"x"), purpose="fine-tune")
    assert gateway.services is not None
    store: Store = gateway.services.store
    async with store.tenant(gateway.tenant_id) as scope:
        (piece,) = await scope.files.pieces(file.id)
    await store.blobs.of(gateway.tenant_id).pieces.remove(piece)
    with pytest.raises(openai.InternalServerError) as reported:
        await client.files.content(file.id)
    assert reported.value.status_code == 503


async def test_a_part_is_bounded(gateway: Gateway) -> None:
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "text/plain", "bytes": 200 << 20}
    async with gateway.http() as http:
        upload = (await http.post("/v1/uploads", json=facts)).json()
        url = f"/v1/uploads/{upload['id']}/parts"
        assert (await exchange(gateway, announcing(gateway, url, 65 << 20))).status == 413
        wrong = await http.post(url, files={"file": b"x"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "file")


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_long_lists_are_read_in_portions(gateway: Gateway, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between which others are served."""
    read: list[int] = []
    really = FileRepository.list

    async def portion(self: FileRepository, *arguments: Any, limit: int, **options: Any) -> Any:
        read.append(limit)
        return await really(self, *arguments, limit=limit, **options)

    monkeypatch.setattr(file_operations, "_LISTED_AT_ONCE", 3)
    monkeypatch.setattr(FileRepository, "list", portion)
    async with gateway.http() as http:
        for _ in range(8):
            await http.post("/v1/files", data={"purpose": "adapter"}, files={"file": b"x"})
        whole = (await http.get("/v1/files", params={"order": order})).json()
        assert read == [3, 3, 3]
        found = [file["id"] for file in whole["data"]]
        assert (len(set(found)), whole["has_more"]) == (8, False)
        page = (await http.get("/v1/files", params={"order": order, "after": found[1], "limit": 5})).json()
        assert [file["id"] for file in page["data"]] == found[2:7]
        assert page["has_more"] is True
        last = (await http.get("/v1/files", params={"order": order, "after": found[6]})).json()
        assert ([file["id"] for file in last["data"]], last["has_more"]) == (found[7:], False)
