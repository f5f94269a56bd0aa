"""Spooling of large bodies to disk while they arrive.

The spool is an anonymous file in the data directory, so nothing is left behind in any case.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import InvalidRequest, UnsupportedMediaType
from loragate.gateway.http.bodies import announced_size, check_encoding, chunks
from loragate.gateway.uploads.multipart import Form, FormShape
from loragate.gateway.uploads.spool_space import UploadSpace

_WRITE_BYTES = 1 << 20
_DATA = FormShape({}, spooled="data")
_FORM_BYTES = 64 << 10  # in addition to the data itself


@asynccontextmanager
async def receive_form(
    request: Request, form: Form, limit: int, config: GatewayConfig, space: UploadSpace
) -> AsyncIterator[BinaryIO]:
    """Fill `form` with the body of `request`, of at most `limit` bytes; yield the content of its large file.

    Raise ApiError for an invalid form, Conflict beyond the tenant's quota, StorageFull if the disk is full.
    """
    parser = MultipartParser(_boundary(request), form.callbacks())
    body = chunks(request, announced_size(request), limit, config.upload_pace)
    async with spool_form(form, _parsed(body, form, parser), space) as content:
        yield content


@asynccontextmanager
async def receive_data(
    request: Request, max_bytes: int, config: GatewayConfig, space: UploadSpace
) -> AsyncIterator[BinaryIO]:
    """Yield the content of `data`, the only field of the form, of about `max_bytes`. Raise as `receive_form`."""
    form = Form(_DATA)
    async with receive_form(request, form, max_bytes + _FORM_BYTES, config, space) as content:
        form.require("data")
        yield content


@asynccontextmanager
async def spool_form(form: Form, steps: AsyncIterator[None], space: UploadSpace) -> AsyncIterator[BinaryIO]:
    """Yield the content of the large file of `form`, after the `steps` that fill the form. Raise as `receive_form`."""
    async with space.file() as spool:
        async for _ in steps:
            if len(form.unspooled) >= _WRITE_BYTES:
                await _write(form, space, spool)
        await _write(form, space, spool)
        space.received()
        yield spool


async def _write(form: Form, space: UploadSpace, spool: BinaryIO) -> None:
    data, form.unspooled = form.unspooled, bytearray()
    await space.write(spool, data)


async def _parsed(body: AsyncIterator[bytes], form: Form, parser: MultipartParser) -> AsyncIterator[None]:
    try:
        async for chunk in body:
            parser.write(chunk)
            yield
    except FormParserError:
        raise _broken() from None
    if not form.complete:
        raise _broken()


def _boundary(request: Request) -> bytes:
    check_encoding(request)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
        raise UnsupportedMediaType("Send the file as multipart/form-data.", param="content-type")
    return bytes(boundary)


def _broken() -> InvalidRequest:
    return InvalidRequest("The multipart form is malformed or incomplete.", code="invalid_form")
