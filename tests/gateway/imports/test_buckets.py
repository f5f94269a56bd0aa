"""Imports from S3: only from the buckets, and for the tenants, that the operator allows."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from s3_server import BUCKET, S3Server, s3_server

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import BucketGrant, ImportConfig
from loragate.gateway.imports import buckets
from loragate.gateway.imports.source import BucketSource, ImportFailed, files_to_fetch
from tests.gateway import tiny_model
from tests.gateway.imports.test_hub import begin, ended
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
async def gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], s3: S3Server, tmp_path: Path
) -> AsyncIterator[Gateway]:
    """All tenants may import from `public/`, and the first tenant from `first/` as well."""
    from s3fs import S3FileSystem

    folder = tiny_model.write_adapter(tmp_path / "poet")
    fs = S3FileSystem(use_listings_cache=False)
    for place in ("public/poet", "first/poet", "secret/poet"):
        for file in folder.iterdir():
            fs.pipe_file(f"{BUCKET}/{place}/{file.name}", file.read_bytes())
    fs.pipe_file(f"{BUCKET}/public/half/adapter_config.json", b"{}")
    grants = (BucketGrant(f"{BUCKET}/public"), BucketGrant(f"{BUCKET}/first", frozenset({tenants[0]})))
    async with serving(replace(config, imports=ImportConfig(hub=None, buckets=grants)), engine, tenants) as running:
        await running.until_ready()
        yield running


async def test_allowed_objects_are_imported(gateway: Gateway) -> None:
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        for client, place in ((http, "public/poet"), (http, "first/poet"), (other, "public/poet/")):
            done = await ended(client, (await begin(client, f"s3://{BUCKET}/{place}"))["id"])
            assert done["status"] == "ready", done
        assert (await http.get("/v1/adapters/poet")).json()["latest_version"] == 2


@pytest.mark.parametrize(
    "source",
    [
        f"s3://{BUCKET}/secret/poet",
        f"s3://{BUCKET}/publicity/poet",
        f"s3://{BUCKET}",
        f"s3://{BUCKET}/first/poet",
        "s3://another/public/poet",
        f"hf://acme/poet@{'0' * 40}",
    ],
)
async def test_buckets_without_a_grant_are_rejected_and_not_accessed(gateway: Gateway, source: str) -> None:
    async with gateway.http(gateway.other_key) as http:
        answer = await http.post("/v1/imports", json={"source": source, "name": "poet"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "source_not_allowed")


@pytest.mark.parametrize(
    "place", ["public/../secret/poet", "public//poet", "public/./poet", "public/poet?x", "%70ublic"]
)
async def test_no_spelling_leads_out_of_a_grant(gateway: Gateway, place: str) -> None:
    async with gateway.http() as http:
        answer = await http.post("/v1/imports", json={"source": f"s3://{BUCKET}/{place}", "name": "poet"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "source")


@pytest.mark.parametrize("place", ["public/half", "public/nothing"])
async def test_missing_objects_are_reported(gateway: Gateway, place: str) -> None:
    async with gateway.http() as http:
        done = await ended(http, (await begin(http, f"s3://{BUCKET}/{place}"))["id"])
        assert (done["status"], done["error"]["code"]) == ("failed", "source_not_found")
        assert (await http.get("/v1/adapters")).json()["data"] == []


@pytest.mark.parametrize("place", ["blobs", "blobs/loragate", "blobs/loragate/tn_1"])
def test_no_grant_opens_the_blob_store(config: GatewayConfig, place: str) -> None:
    with pytest.raises(ValueError, match="all tenants"):
        replace(config, blob_url="s3://blobs/loragate", imports=ImportConfig(buckets=(BucketGrant(place),)))
    replace(config, blob_url="s3://blobs/loragate", imports=ImportConfig(buckets=(BucketGrant("blobs/lora"),)))


class Growing:
    """An object that is larger when it is read than when it was asked for its size."""

    def __init__(self) -> None:
        self.read = 0

    def size(self, path: str) -> int:
        return 1000

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        while True:
            self.read += 600
            yield bytes(600)


async def test_an_object_that_grows_while_it_is_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing()
    monkeypatch.setattr(buckets, "open_objects", lambda url: (growing, "bucket/poet"))
    pieces = buckets.bucket_files(
        BucketSource("bucket/poet"), files_to_fetch(1 << 20, signed=False), lambda total: None
    )
    assert len((await anext(pieces))[1]) == 600
    with pytest.raises(ImportFailed) as failed:
        await anext(pieces)
    assert failed.value.failure.code == "source_changed"


async def test_a_signature_in_the_bucket_is_read(s3: S3Server, tmp_path: Path) -> None:
    from s3fs import S3FileSystem

    place = f"{BUCKET}/signed/{tmp_path.name}"
    files = {"adapter_config.json": b"{}", "model.sig": b"a signature", "adapter_model.safetensors": b"tensors"}
    for name, content in files.items():
        S3FileSystem().pipe_file(f"{place}/{name}", content)
    for signed in (True, False):
        wanted = files_to_fetch(1 << 20, signed=signed)
        names = {file.name for file in wanted}
        pieces = buckets.bucket_files(BucketSource(place), wanted, lambda total: None)
        assert dict([piece async for piece in pieces]) == {name: files[name] for name in files if name in names}
