"""A disk that is really full: uploads get 507 and leave nothing behind, and everything else keeps working."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from tests.attacks.raw_http import exchange, head
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

SIZE = 4 << 20
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount file systems has a small one")  # a privilege that CI may lack
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _used(folder: Path) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


@pytest.mark.parametrize("full", ["blobs", "spool"])
async def test_a_disk_that_fills(
    config: GatewayConfig, engine: StubEngine, tenants: Any, small_disk: Path, tmp_path: Path, full: str
) -> None:
    if full == "blobs":
        small = replace(config, blob_url=(small_disk / "blobs").as_uri(), min_free_bytes=0)
    else:
        small = replace(config, data_dir=small_disk, min_free_bytes=0, upload_disk_share=1.0)
    folder = tiny_model.write_adapter(tmp_path / "poet")
    files = {name: (folder / name).read_bytes() for name in (CONFIG, TENSORS)}
    async with serving(small, engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http:
            assert (await http.post("/v1/adapters", data={"name": "poet"}, files=files)).status_code == 201
            before = _used(small_disk)
            content = bytes(SIZE + 4096)  # more than the disk has when nothing else is on it
            large: Any = {"data": {"purpose": "fine-tune"}, "files": {"file": ("a", content)}}
            rejected = await http.post("/v1/files", **large)
            assert (rejected.status_code, rejected.json()["error"]["code"]) == (507, "insufficient_storage")
            assert _used(small_disk) == before, "the partial file is removed"
            assert (await http.get("/v1/files")).json()["data"] == []
            said = await http.post("/v1/completions", json={"model": "poet", "prompt": "hello"})
            assert said.status_code == 200, said.text
            for name, stored in files.items():
                assert (await http.get(f"/v1/adapters/poet/versions/1/files/{name}")).content == stored
            assert (await http.post("/v1/files", data=large["data"], files={"file": ("a", b"x")})).status_code == 200


async def test_an_upload_that_does_not_fit_is_rejected_before_it_comes(
    config: GatewayConfig, engine: StubEngine, tenants: Any, small_disk: Path
) -> None:
    """The head of a request whose body never comes gets 507."""
    async with serving(replace(config, data_dir=small_disk, min_free_bytes=0), engine, tenants) as gateway:
        await gateway.until_ready()
        for url in ("/v1/files", "/v1/adapters"):
            answer = await exchange(gateway, _announcing(gateway, url))
            assert (answer.status, answer.code) == (507, "insufficient_storage")


def _announcing(gateway: Gateway, url: str) -> bytes:
    start = head(gateway, url).replace(b"application/json", b"multipart/form-data; boundary=b")
    return start + b"Content-Length: %d\r\n\r\n" % (2 * SIZE)
