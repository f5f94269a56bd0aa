"""Adapter uploads: exactly PEFT's two files. File names that a client sends only tell the two apart; they never name
anything on this machine."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import orjson
import pydantic_core
from starlette.requests import Request

from loragate.adapter_store.adapters.lineage import UPLOADED, Lineage
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.resources.adapters import LineageFields
from loragate.gateway.schemas.validation import validated
from loragate.gateway.uploads.multipart import Form, FormShape
from loragate.gateway.uploads.spool import form_of, spooled

MOST_CONFIG_BYTES = 1 << 20
_TEXT_BYTES = 16 << 10
ADAPTER_FORM = FormShape(
    fields={
        "name": 1024,
        "alias": 1024,
        "tags": _TEXT_BYTES,
        "description": _TEXT_BYTES,
        "notes": _TEXT_BYTES,
        "dataset_digest": 1024,
        "parent_version": 1024,
        "evaluation": _TEXT_BYTES,
    },
    small_files={CONFIG_FILE: MOST_CONFIG_BYTES},
    spooled=TENSORS_FILE,
)
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete one. `tensors` is open for as long as its block lasts."""

    name: str
    alias: str | None
    tags: tuple[str, ...] | None
    description: str | None
    config_json: bytes
    tensors: BinaryIO
    lineage: Lineage = UPLOADED

    def identity(self) -> tuple[bytes, ...]:
        """What makes it another upload than others. Reads the whole file, so call it in a thread."""
        told = (self.name, self.alias or "", repr(self.tags), repr(self.description))
        lineage = orjson.dumps(self.lineage, option=orjson.OPT_SORT_KEYS)
        return (*(text.encode() for text in told), lineage, self.config_json, digest_of(self.tensors))


def digest_of(file: BinaryIO) -> bytes:
    """SHA-256 of all that is in it."""
    file.seek(0)
    digest = hashlib.sha256()
    while part := file.read(_READ_BYTES):
        digest.update(part)
    return digest.digest()


@asynccontextmanager
async def received(request: Request, config: GatewayConfig) -> AsyncIterator[Upload]:
    """The form of `request`. Raises ApiError for what it should not hold, StorageFull when the disk is full."""
    form = Form(ADAPTER_FORM)
    async with form_of(request, form, config.max_upload_bytes, config) as tensors:
        yield _complete(form, tensors)


@asynccontextmanager
async def collected(form: Form, steps: AsyncIterator[None], config: GatewayConfig) -> AsyncIterator[Upload]:
    """The same of a form that `steps` fill."""
    async with spooled(form, steps, config) as tensors:
        yield _complete(form, tensors)


def _complete(form: Form, tensors: BinaryIO) -> Upload:
    form.require(CONFIG_FILE, TENSORS_FILE, "name")
    said = form.text("alias"), _tags(form), form.text("description")
    return Upload(form.text("name") or "", *said, form.content(CONFIG_FILE), tensors, _lineage(form))


def _tags(form: Form) -> tuple[str, ...] | None:
    """They are written in one field."""
    tags = form.text("tags")
    return None if tags is None else tuple(tag for each in tags.split(",") if (tag := each.strip()))


def _lineage(form: Form) -> Lineage:
    """Raises ApiError and Invalid."""
    texts = {field: form.text(field) for field in ("notes", "dataset_digest")}
    values = {field: _json(field, form.text(field)) for field in ("parent_version", "evaluation")}
    return validated(LineageFields, {**texts, **values}).lineage()


def _json(field: str, text: str | None) -> object:
    try:
        return None if text is None else pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        raise InvalidRequest(f"Invalid '{field}': it is not JSON.", param=field, code="invalid_value") from None
