"""The memory of a gateway process while gigabytes pass through it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from s3_server import s3_server
from thinned import thinned

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.stub_engine import StubEngine

MOST = 100 << 20
PART = 64 << 20


@pytest.fixture(params=thinned(["disk", "s3"], fast={"disk"}))
def blobs(request: pytest.FixtureRequest, config: GatewayConfig) -> Iterator[str]:
    if request.param == "disk":
        yield config.blob_url
        return
    with s3_server() as server:
        yield server.new_url()


@contextmanager
def sparse(folder: Path, size: int) -> Iterator[Any]:
    """Create a file of zeros that takes no disk space."""
    path = folder / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
    with path.open("rb") as file:
        yield file


async def _send(http: httpx.AsyncClient, folder: Path, size: int, *, parts: int) -> None:
    """Send it once as an adapter's file, which is rejected after reading, and once as a file that is stored."""
    with sparse(folder, size) as file:
        form: Any = {"adapter_config.json": b"{}", "adapter_model.safetensors": file}
        rejected = await http.post("/v1/adapters", data={"name": "a"}, files=form)
        assert rejected.status_code == 400, rejected.text
    facts = {"filename": "f", "purpose": "adapter", "mime_type": "a/b", "bytes": size}
    upload = (await http.post("/v1/uploads", json=facts)).json()
    ids = []
    for _ in range(parts):
        with sparse(folder, size // parts) as file:
            part = await http.post(f"/v1/uploads/{upload['id']}/parts", files={"data": file})
        assert part.status_code == 200, part.text
        ids.append(part.json()["id"])
    done = await http.post(f"/v1/uploads/{upload['id']}/complete", json={"part_ids": ids})
    made = {"name": "a", "adapter_config": "{}", "tensors_file_id": done.json()["file"]["id"]}
    assert (await http.post("/v1/adapters", json=made)).status_code == 400
    async with http.stream("GET", f"/v1/files/{made['tensors_file_id']}/content") as content:
        assert sum([len(chunk) async for chunk in content.aiter_raw()]) == size


async def _growth(config: GatewayConfig, engine: StubEngine, tenants: Any, folder: Path, blobs: str, size: int) -> int:
    async with (
        gateway_in_a_process(replace(config, blob_url=blobs), engine, tenants) as own,
        own.gateway.http() as http,
    ):
        http.timeout = httpx.Timeout(600)
        await _send(http, folder, 1 << 20, parts=1)  # what is loaded once
        own.reset_peak()
        before = own.peak_bytes()
        await _send(http, folder, size, parts=size // PART)
        return own.peak_bytes() - before


@pytest.mark.timeout(280)
async def test_two_hundred_megabytes(
    config: GatewayConfig, engine: StubEngine, tenants: Any, tmp_path: Path, blobs: str
) -> None:
    growth = await _growth(config, engine, tenants, tmp_path, blobs, 192 << 20)
    assert growth < MOST, f"{growth >> 20} MiB more"


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_two_gigabytes(
    config: GatewayConfig, engine: StubEngine, tenants: Any, tmp_path: Path, blobs: str
) -> None:
    growth = await _growth(config, engine, tenants, tmp_path, blobs, 2 << 30)
    assert growth < MOST, f"{growth >> 20} MiB more"
