"""Ways around the storage quotas: bytes count from before they are written until they are removed.

Each test is an attack of a tenant with a quota, measured by what lies on the disk afterwards.
"""

import json
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from loragate.adapter_store.errors import StorageFull
from loragate.adapter_store.quotas import Room
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.uploads import spool_space
from loragate.gateway.uploads.spool_space import SpoolSpace
from tests.attacks.raw_http import connected, exchange, head
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

QUOTA = 64 << 10
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    async with serving(replace(config, upload_stall_seconds=60), engine, tenants) as running:
        await running.until_ready()
        await limit(running, max_storage_bytes=QUOTA, max_objects=100)
        yield running


async def limit(gateway: Gateway, **limits: int | None) -> None:
    async with gateway.admin() as admin:
        answer = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
    assert answer.status_code == 200, answer.text


def adapter(folder: Path, seed: int = 0, **ignored: str) -> dict[str, bytes]:
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(folder / "poet", seed=seed).iterdir()}
    return files | {CONFIG: json.dumps(json.loads(files[CONFIG]) | ignored).encode()}


def stored(gateway: Gateway) -> int:
    """The bytes of all blobs on the disk."""
    root = Path(gateway.config.blob_url.removeprefix("file://"))
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


EXCEEDED = (409, "quota_exceeded")


async def test_deleted_bytes_count_until_they_are_gone(gateway: Gateway, tmp_path: Path) -> None:
    refused = 0
    async with gateway.http() as http:
        for seed in range(40):
            answer = await http.post("/v1/adapters", data={"name": "poet"}, files=adapter(tmp_path, seed))
            refused += answer.status_code == 409
            await http.delete("/v1/adapters/poet")
            form: Any = {"data": {"purpose": "fine-tune"}, "files": {"file": bytes(5000)}}
            answer = await http.post("/v1/files", **form)
            refused += answer.status_code == 409
            if answer.status_code == 200:
                await http.delete(f"/v1/files/{answer.json()['id']}")
        assert refused
        assert stored(gateway) <= QUOTA
        assert code(await http.post("/v1/files", **form)) == EXCEEDED
        assert gateway.services is not None
        await gateway.services.store.sweep(timedelta(0), timedelta(0))
        assert (await http.post("/v1/files", **form)).status_code == 200, "there is room again"


async def test_uploads_of_unknown_size_are_cut_at_the_quota(gateway: Gateway) -> None:
    """They are cut while they come, and nothing of them is stored."""
    start = head(gateway, "/v1/files").replace(b"application/json", b"multipart/form-data; boundary=b")
    begun = start + b"Transfer-Encoding: chunked\r\n\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    piece = bytes(1 << 20)
    async with connected(gateway) as connection:
        await connection.send(begun, b"%x\r\n%s\r\n" % (len(part), part))
        for _ in range(3):
            await connection.send(b"%x\r\n" % len(piece), piece, b"\r\n")
        answer = await connection.answer()  # without an end
    assert (answer.status, answer.code) == EXCEEDED
    assert stored(gateway) == 0
    await gateway.until_nothing_is_spooled()


async def test_an_adapter_over_the_quota_is_not_stored(gateway: Gateway, tmp_path: Path) -> None:
    files = adapter(tmp_path)
    await limit(gateway, max_storage_bytes=len(files[TENSORS]))
    async with gateway.http() as http:
        for _ in range(2):
            assert code(await http.post("/v1/adapters", data={"name": "poet"}, files=files)) == EXCEEDED
    assert stored(gateway) == 0


async def test_cancelled_uploads_count_until_they_are_gone(gateway: Gateway) -> None:
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "a/b", "bytes": 10_000}
    made = 0
    async with gateway.http() as http:
        for _ in range(20):
            answer = await http.post("/v1/uploads", json=facts)
            if answer.status_code == 200:
                made += 1
                upload = answer.json()["id"]
                part = await http.post(f"/v1/uploads/{upload}/parts", files={"data": bytes(10_000)})
                assert part.status_code == 200, part.text
                assert (await http.post(f"/v1/uploads/{upload}/cancel")).status_code == 200
        assert code(await http.post("/v1/uploads", json=facts)) == EXCEEDED
    assert made == QUOTA // 10_000
    assert stored(gateway) <= QUOTA


async def test_parts_count_once_within_what_their_upload_announced(gateway: Gateway) -> None:
    """A quota that is exactly filled takes all of the parts, also in parallel."""
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "a/b", "bytes": QUOTA}
    async with gateway.http() as http:
        upload = (await http.post("/v1/uploads", json=facts)).json()["id"]
        parts = [await http.post(f"/v1/uploads/{upload}/parts", files={"data": bytes(QUOTA // 4)}) for _ in range(4)]
        assert {part.status_code for part in parts} == {200}
        done = await http.post(f"/v1/uploads/{upload}/complete", json={"part_ids": [p.json()["id"] for p in parts]})
        assert done.status_code == 200, done.text


async def test_what_a_config_holds_is_stored_once_and_counted(gateway: Gateway, tmp_path: Path) -> None:
    """Fields that are ignored change no digest: versions share their bytes, and the database keeps none of them."""
    await limit(gateway, max_storage_bytes=1 << 20)
    database = Path(gateway.config.database_url.rpartition("///")[2])
    database = database if database.is_absolute() else Path("/") / database
    before = _database_bytes(database)
    async with gateway.http() as http:
        for number in range(8):
            files = adapter(tmp_path, revision=f"{number}" + "x" * 900_000)
            answer = await http.post("/v1/adapters", data={"name": "poet"}, files=files)
            assert answer.status_code == 201, answer.text
        assert _database_bytes(database) - before < 500_000
        assert 900_000 < stored(gateway) <= 1 << 20
        other = adapter(tmp_path, seed=1, revision="y" * 900_000)
        assert code(await http.post("/v1/adapters", data={"name": "poet"}, files=other)) == EXCEEDED


def _database_bytes(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return database.stat().st_size


async def test_objects_are_counted(gateway: Gateway, tmp_path: Path) -> None:
    """Files of one byte and appends of one line are few bytes and many objects."""
    await limit(gateway, max_objects=12)
    line = b'{"text": "a"}\n'
    async with gateway.http() as http:
        form: Any = {"data": {"purpose": "fine-tune", "open": "true"}, "files": {"file": b""}}
        file = (await http.post("/v1/files", **form)).json()["id"]
        answers = [await http.post(f"/v1/files/{file}/append", files={"data": line}) for _ in range(20)]
        assert [answer.status_code for answer in answers] == [200] * 11 + [409] * 9
        assert code(answers[-1]) == EXCEEDED
        assert "max_objects" in answers[-1].text
        small: Any = {"data": {"purpose": "fine-tune"}, "files": {"file": b"x"}}
        assert code(await http.post("/v1/files", **small)) == EXCEEDED
        files = adapter(tmp_path)
        assert code(await http.post("/v1/adapters", data={"name": "poet"}, files=files)) == EXCEEDED


async def test_what_was_only_announced_takes_no_space(gateway: Gateway) -> None:
    """Slow uploads that announce gigabytes hold what they have sent, however much their tenant may store."""
    await limit(gateway, max_storage_bytes=None)
    start = head(gateway, "/v1/files").replace(b"application/json", b"multipart/form-data; boundary=b")
    begun = start + b"Content-Length: %d\r\n\r\n" % (256 << 20)
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    async with connected(gateway) as one, connected(gateway) as two:
        for connection in (one, two):
            await connection.send(begun, part, bytes(8800))
        while len(gateway.spools()) < 2:
            assert (await exchange(gateway, head(gateway, "/v1/files", method="GET") + b"\r\n")).status == 200
        assert _taken() == 0


def _taken() -> int:
    """The bytes on the disk of this process's files without a name."""
    taken = 0
    for file in Path("/proc/self/fd").iterdir():
        if file.exists() or "(deleted)" in _link(file):
            try:
                status = os.stat(file)
            except FileNotFoundError:
                continue
            taken += 512 * status.st_blocks if "/uploads/" in _link(file) else 0
    return taken


def _link(file: Path) -> str:
    try:
        return os.readlink(file)
    except FileNotFoundError:
        return ""


async def test_the_uploads_of_a_tenant_fit_its_quota_together(gateway: Gateway) -> None:
    start = head(gateway, "/v1/files").replace(b"application/json", b"multipart/form-data; boundary=b")
    begun = start + b"Content-Length: %d\r\n\r\n" % (QUOTA // 2 + (64 << 10) + 1)
    async with connected(gateway) as one, connected(gateway) as two:
        await one.send(begun)
        while not gateway.spools():
            assert (await exchange(gateway, head(gateway, "/v1/files", method="GET") + b"\r\n")).status == 200
        await two.send(begun)
        answer = await two.answer()
        assert (answer.status, answer.code) == EXCEEDED
        other = begun.replace(gateway.key.encode(), gateway.other_key.encode())
        async with connected(gateway) as stranger:
            await stranger.send(other)
            while len(gateway.spools()) < 2:
                assert (await exchange(gateway, head(gateway, "/v1/files", method="GET") + b"\r\n")).status == 200


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the disk says that it has free."""
    left = [1000]
    monkeypatch.setattr(spool_space, "free_bytes", lambda file: left[0])
    return left


async def test_a_floor_of_free_space_is_never_touched(tmp_path: Path, free: list[int]) -> None:
    space = SpoolSpace(tmp_path, min_free=400, share=1.0)
    with space.open("one", Room()) as upload:
        async with upload.file() as file:
            await upload.write(file, bytes(600))
            free[0] = 400
            with pytest.raises(StorageFull, match="keeps 400 bytes"):
                await upload.write(file, b"x")
    free[0] = 1000
    with space.open("one", Room(), announced=601) as upload, pytest.raises(StorageFull):
        async with upload.file():
            pass


async def test_one_process_takes_a_share_of_what_is_free(tmp_path: Path, free: list[int]) -> None:
    """All its uploads together, of all tenants; what ends is free again."""
    space = SpoolSpace(tmp_path, min_free=0, share=0.5)
    with space.open("one", Room()) as one, space.open("two", Room()) as two:
        async with one.file() as first:
            await one.write(first, bytes(300))
            free[0] -= 300
            async with two.file() as second:
                await two.write(second, bytes(200))
                free[0] -= 200
                with pytest.raises(StorageFull, match="try again later"):
                    await two.write(second, b"x")
            free[0] += 200
            await one.write(first, bytes(100))
            assert space.used == 400
    assert space.used == 0
