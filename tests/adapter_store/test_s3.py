"""S3 only: its errors, its credentials, objects of several parts. All other tests of blobs run on S3 as well."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from s3_server import S3Server, another_s3_server
from s3fs import S3FileSystem

from loragate.adapter_store.blobs import s3 as s3_module
from loragate.adapter_store.blobs.blobs import Blobs
from loragate.adapter_store.errors import CannotOpen, StorageFull, Unavailable

TENANT, DIGEST = "tn_acme", "sha256:" + "a" * 64


@contextmanager
def fresh_file_systems() -> Iterator[None]:
    """Clears fsspec's cached file systems, which have read the environment."""
    kinds = (S3FileSystem, s3_module._Bounded)
    for kind in kinds:
        kind.clear_instance_cache()
    try:
        yield
    finally:
        for kind in kinds:
            kind.clear_instance_cache()


@pytest.fixture
def blobs(blob_url_in_s3: str) -> Blobs:
    return Blobs(blob_url_in_s3)


async def test_many_parts_are_read_back_as_one_file(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "_PART_BYTES", 5 << 20)
    content = os.urandom(12 << 20)
    await blobs.of(TENANT).put(DIGEST, b"{}", io.BytesIO(content))
    stored = await blobs.of(TENANT).open(DIGEST)
    chunks = [chunk async for chunk in stored.tensors]
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 1 << 20


async def test_a_failed_write_leaves_neither_object_nor_parts(
    blobs: Blobs, blob_url_in_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 8 << 20:
                raise OSError("the spool broke")
            return super().read(size)

    monkeypatch.setattr(s3_module, "_PART_BYTES", 5 << 20)
    with pytest.raises(Unavailable):
        await blobs.of(TENANT).put(DIGEST, b"{}", Breaking(bytes(12 << 20)))
    assert not await blobs.of(TENANT).has(DIGEST)
    fs = S3FileSystem(use_listings_cache=False)
    assert fs.find(blob_url_in_s3) == []
    prefix = blob_url_in_s3.rpartition("/")[2]
    assert not [each for each in fs.list_multipart_uploads("loragate") if each["Key"].startswith(prefix)]


@pytest.mark.parametrize(
    ("code", "status", "reported"),
    [
        ("AccessDenied", 403, Unavailable),
        ("NoSuchBucket", 404, Unavailable),
        ("SlowDown", 503, Unavailable),
        ("InternalError", 500, Unavailable),
        ("XMinioStorageFull", 507, StorageFull),
        ("QuotaExceeded", 403, StorageFull),
    ],
)
async def test_s3_errors_are_mapped_to_ours(
    blobs: Blobs, code: str, status: int, reported: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    await blobs.try_out()  # connects
    client = blobs._objects._fs._s3

    async def reject(self: Any, **ignored: Any) -> None:
        answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, "PutObject")

    reject.__name__ = "put_object"  # s3fs asks
    monkeypatch.setattr(type(client), "put_object", reject)
    with pytest.raises(reported):
        await blobs.of(TENANT).put(DIGEST, b"{}", io.BytesIO(b"x"))


async def test_an_unreachable_s3_is_not_an_empty_one() -> None:
    with fresh_file_systems(), another_s3_server() as server:
        blobs = Blobs(server.new_url())
        await blobs.of(TENANT).put(DIGEST, b"{}", io.BytesIO(b"x"))
        server.close()
        for ask in (blobs.of(TENANT).has(DIGEST), blobs.tenant_ids(), blobs.try_out()):
            with pytest.raises(Unavailable):
                await ask
        with pytest.raises(OSError):
            await blobs.of(TENANT).open(DIGEST)


async def test_a_hanging_s3_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "_CALL_SECONDS", 0.5)
    with fresh_file_systems(), another_s3_server() as server:
        blobs = Blobs(server.new_url())
        server.pause()
        try:
            with pytest.raises(Unavailable):
                await blobs.try_out()
        finally:
            server.resume()


async def test_wrong_credentials_are_not_an_empty_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in s3.environment:
        if "KEY" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with fresh_file_systems(), pytest.raises(Unavailable):
        await Blobs(s3.new_url()).of(TENANT).has(DIGEST)


@pytest.mark.parametrize("url", ["gopher://x/y", "s4://bucket"])
def test_unknown_url_schemes(url: str) -> None:
    with pytest.raises(CannotOpen):
        Blobs(url)


def test_s3_without_its_packages_names_what_is_missing(missing: Callable[[str], None]) -> None:
    missing("s3fs")
    with pytest.raises(CannotOpen, match=r"loragate\[s3\]"):
        Blobs("s3://bucket/prefix")


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package look as if it were not installed."""
    import sys

    def hide(name: str) -> None:
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, "loragate.adapter_store.blobs.s3")

    return hide
