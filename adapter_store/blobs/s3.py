"""Blobs in S3 and compatible stores. Imported only if an `s3://` URL is used.

An object appears as a whole once its PUT or its multipart upload is complete, so there are no temporary names. An
interrupted writer leaves a multipart upload that was never completed: invisible, but billed.

Endpoint, region and credentials come from where AWS' own tools have them: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, …,
a profile, or the machine's role.
"""

import asyncio
import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO

from aiohttp import ClientError as TransferError
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from loragate.adapter_store.blobs.filesystem import CHUNK_BYTES, Objects

_PART_BYTES = 8 << 20  # of a multipart upload: 10,000 of them make an object of 80 GB at most
_AHEAD_BYTES = 4 << 20
_TRIES = 3
_CALL_SECONDS = 30.0  # for a call with a part: aiohttp waits forever for a "100 Continue"
_ASK_ONCE = {"connect_timeout": 3, "read_timeout": 20, "retries": {"total_max_attempts": 1}}  # s3fs retries itself
_FULL = frozenset({"XMinioStorageFull", "QuotaExceeded", "QuotaExceededException", "InsufficientCapacity"})


def open_s3(url: str) -> tuple["S3Objects", str]:
    """Return the objects and the root, `bucket/prefix`. Makes no request yet."""
    fs = _Bounded(use_listings_cache=False, config_kwargs=_ASK_ONCE)
    return S3Objects(fs), fs._strip_protocol(url)


class S3Objects(Objects):
    """S3 as a file system. Errors of S3 and its transport become OSError; a full bucket ENOSPC."""

    def exists(self, path: str) -> bool:
        with _os_errors():
            return super().exists(path)

    def size(self, path: str) -> int:
        with _os_errors():
            return super().size(path)

    def read(self, path: str) -> bytes:
        with _os_errors():
            return super().read(path)

    def names(self, directory: str) -> list[str]:
        with _os_errors():
            return super().names(directory)

    def older_than(self, directory: str, moment: datetime) -> list[str]:
        """Use one listing, of a thousand objects per request."""
        newest: dict[str, datetime] = {}
        with _os_errors():
            found: dict[str, Any] = self._fs.find(directory, detail=True)
        for path, info in found.items():
            name = path.removeprefix(f"{directory}/").partition("/")[0]
            written = info["LastModified"].astimezone(UTC)
            newest[name] = max(written, newest.get(name, written))
        return [name for name, written in newest.items() if written < moment]

    def write(self, path: str, source: BinaryIO, drafts: str) -> None:
        source.seek(0)
        with _os_errors():
            file = self._fs.open(path, "wb", block_size=_PART_BYTES)
            try:
                shutil.copyfileobj(source, file, CHUNK_BYTES)
                file.close()
            except BaseException:
                file.closed = True  # otherwise garbage collection would complete the partial object
                with suppress(OSError, BotoCoreError, ClientError, TransferError):
                    file.discard()
                raise

    def settle(self, *directories: str) -> None:
        """Do nothing: an object that exists is durable."""

    def remove(self, path: str) -> None:
        with _os_errors():
            for file in self._fs.find(path):
                self._fs.rm_file(file)

    def remove_drafts(self, drafts: str, before: datetime) -> None:
        bucket, _, key = drafts.rpartition("/")[0].partition("/")
        with _os_errors():
            answer = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/")
            for upload in answer.get("Uploads", ()):
                if upload["Initiated"].astimezone(UTC) < before:
                    self._fs.abort_mpu(bucket, upload["Key"], upload["UploadId"])

    def move(self, path: str, to: str) -> None:
        with _os_errors():
            for file in sorted(self._fs.find(path)):
                self._fs.mv(file, to + file.removeprefix(path))

    def open(self, path: str) -> Any:
        with _os_errors():
            return _Reader(self._fs.open(path, "rb", block_size=_AHEAD_BYTES, cache_type="readahead"))


class _Bounded(S3FileSystem):  # type: ignore[misc]
    """An S3 file system whose calls have a time limit."""

    retries = _TRIES

    async def _call_s3(self, method: str, *options: Any, **more: Any) -> Any:
        async with asyncio.timeout(_CALL_SECONDS):
            return await super()._call_s3(method, *options, **more)

    call_s3 = sync_wrapper(_call_s3)


class _Reader:
    """A file whose reads raise OSError."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        with _os_errors():
            content: bytes = self._file.read(size)
            return content

    def close(self) -> None:
        self._file.close()


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if _code_of(error.__cause__) in _FULL:
            raise OSError(errno.ENOSPC, "the bucket is full") from error
        raise
    except (BotoCoreError, ClientError, TransferError) as error:
        full = _code_of(error) in _FULL
        raise OSError(errno.ENOSPC if full else errno.EIO, f"S3: {error}") from error


def _code_of(error: BaseException | None) -> str | None:
    if not isinstance(error, ClientError):
        return None
    code: str | None = error.response.get("Error", {}).get("Code")
    return code
