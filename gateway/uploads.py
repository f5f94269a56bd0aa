"""Adapter uploads: exactly PEFT's two files, spooled to disk while they come; over HTTP as a multipart form.

The spool is an anonymous file in the data directory: whatever happens, nothing is left behind. File names that a
client sends only tell the two files apart; they never name anything on this machine.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from loragate.adapter_store.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.faults import blob_faults
from loragate.gateway.config import GatewayConfig
from loragate.gateway.http.bodies import check_encoding, chunks
from loragate.gateway.http.errors import InvalidRequest, UnsupportedMediaType
from loragate.gateway.upload_form import UploadForm

_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete one. `tensors` is open for as long as its block lasts."""

    name: str
    alias: str | None
    tags: tuple[str, ...] | None
    description: str | None
    config_json: bytes
    tensors: BinaryIO

    def identity(self) -> tuple[bytes, ...]:
        """What makes it another upload than others. Reads the whole file, so call it in a thread."""
        self.tensors.seek(0)
        digest = hashlib.sha256()
        while part := self.tensors.read(_WRITE_BYTES):
            digest.update(part)
        told = (self.name, self.alias or "", repr(self.tags), repr(self.description))
        return (*(text.encode() for text in told), self.config_json, digest.digest())


@asynccontextmanager
async def received(request: Request, config: GatewayConfig) -> AsyncIterator[Upload]:
    """The form of `request`. Raises ApiError for what it should not hold, StorageFull when the disk is full."""
    form = UploadForm()
    parser = MultipartParser(_boundary(request), form.callbacks())
    async with collected(form, _parsed(request, config, form, parser), config) as upload:
        yield upload


@asynccontextmanager
async def collected(form: UploadForm, steps: AsyncIterator[None], config: GatewayConfig) -> AsyncIterator[Upload]:
    """What `form` holds once `steps`, each of which adds a little to it, are done."""
    with blob_faults():
        spool = await asyncio.to_thread(_open_spool, config.upload_dir)
    try:
        async for _ in steps:
            if len(form.tensors) >= _WRITE_BYTES:
                await _spool(form, spool)
        await _spool(form, spool)
        yield _complete(form, spool)
    finally:
        await asyncio.to_thread(spool.close)  # giving gigabytes back takes a file system its time


async def _parsed(
    request: Request, config: GatewayConfig, form: UploadForm, parser: MultipartParser
) -> AsyncIterator[None]:
    try:
        async for chunk in chunks(request, config.max_upload_bytes, config.stall_seconds):
            parser.write(chunk)
            yield
    except FormParserError:
        raise _broken() from None
    if not form.complete:
        raise _broken()


def _open_spool(directory: Path) -> BinaryIO:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory)


async def _spool(form: UploadForm, spool: BinaryIO) -> None:
    data, form.tensors = form.tensors, bytearray()
    with blob_faults():
        await asyncio.to_thread(spool.write, data)


def _boundary(request: Request) -> bytes:
    check_encoding(request)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
        raise UnsupportedMediaType("Send the adapter as multipart/form-data.", param="content-type")
    return bytes(boundary)


def _broken() -> InvalidRequest:
    return InvalidRequest("The multipart form is broken or incomplete.", code="invalid_form")


def _complete(form: UploadForm, spool: BinaryIO) -> Upload:
    for file in (CONFIG_FILE, TENSORS_FILE):
        if file not in form.seen:
            raise InvalidRequest(f"The upload lacks the file '{file}'.", param=file, code="missing_file")
    name = form.text("name")
    if name is None:
        raise InvalidRequest("Invalid 'name': this field is required.", param="name", code="invalid_value")
    return Upload(name, form.text("alias"), _tags(form), form.text("description"), bytes(form.config), spool)


def _tags(form: UploadForm) -> tuple[str, ...] | None:
    """They are written in one field."""
    tags = form.text("tags")
    return None if tags is None else tuple(tag for each in tags.split(",") if (tag := each.strip()))
