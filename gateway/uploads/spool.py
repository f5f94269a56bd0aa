"""Spooling of large bodies to disk while they arrive.

The spool is an anonymous file in the data directory, so nothing is left behind in any case. If the size of the body is
known, disk space for it is reserved first, so that a full disk is reported at once.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from loragate.adapter_store.blobs.durability import reserve
from loragate.adapter_store.database.error_mapping import blob_faults
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import InvalidRequest, UnsupportedMediaType
from loragate.gateway.http.bodies import announced_size, check_encoding, chunks
from loragate.gateway.uploads.multipart import Form, FormShape

_WRITE_BYTES = 1 << 20
_DATA = FormShape({}, spooled="data")
_FORM_BYTES = 64 << 10  # in addition to the data itself


@asynccontextmanager
async def receive_form(
    request: Request, form: Form, announced: int, limit: int, config: GatewayConfig
) -> AsyncIterator[BinaryIO]:
    """Fill `form` with the body of `request`, of the `announced` size and at most `limit` bytes; yield the content of
    its large file.

    Raise ApiError for an invalid form, StorageFull if the disk is full.
    """
    parser = MultipartParser(_boundary(request), form.callbacks())
    steps = _parsed(chunks(request, announced, limit, config.upload_pace), form, parser)
    async with spool_form(form, steps, config, min(limit, announced)) as spool:
        yield spool


@asynccontextmanager
async def receive_data(request: Request, max_bytes: int, config: GatewayConfig) -> AsyncIterator[BinaryIO]:
    """Yield the content of `data`, the only field of the form, of about `max_bytes` at most.

    Raise ApiError for another form, StorageFull if the disk is full.
    """
    form = Form(_DATA)
    async with receive_form(request, form, announced_size(request), max_bytes + _FORM_BYTES, config) as content:
        form.require("data")
        yield content


@asynccontextmanager
async def spool_form(
    form: Form, steps: AsyncIterator[None], config: GatewayConfig, size: int = 0
) -> AsyncIterator[BinaryIO]:
    """Yield the content of the large file of `form`, about `size` bytes, after the `steps` that fill the form."""
    async with empty_spool(config, size) as spool:
        async for _ in steps:
            if len(form.unspooled) >= _WRITE_BYTES:
                await _write(form, spool)
        await _write(form, spool)
        await asyncio.to_thread(spool.truncate)
        yield spool


@asynccontextmanager
async def empty_spool(config: GatewayConfig, size: int) -> AsyncIterator[BinaryIO]:
    """Yield an empty spool with `size` bytes reserved. Raise StorageFull, Unavailable."""
    with blob_faults():
        spool = await asyncio.to_thread(_open, config.upload_dir)
    try:
        with blob_faults():
            await asyncio.to_thread(reserve, spool, size)
        yield spool
    finally:
        await asyncio.to_thread(spool.close)  # freeing gigabytes takes a file system some time


async def _parsed(body: AsyncIterator[bytes], form: Form, parser: MultipartParser) -> AsyncIterator[None]:
    try:
        async for chunk in body:
            parser.write(chunk)
            yield
    except FormParserError:
        raise _broken() from None
    if not form.complete:
        raise _broken()


def _open(directory: Path) -> BinaryIO:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory)


async def _write(form: Form, spool: BinaryIO) -> None:
    data, form.unspooled = form.unspooled, bytearray()
    with blob_faults():
        await asyncio.to_thread(spool.write, data)


def _boundary(request: Request) -> bytes:
    check_encoding(request)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
        raise UnsupportedMediaType("Send the file as multipart/form-data.", param="content-type")
    return bytes(boundary)


def _broken() -> InvalidRequest:
    return InvalidRequest("The multipart form is malformed or incomplete.", code="invalid_form")
