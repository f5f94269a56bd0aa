"""Adapter uploads, which consist of PEFT's two files and, if they are signed, `model.sig`.

File names that a client sends only distinguish the files; they never name anything on this machine.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import orjson
import pydantic_core
from starlette.requests import Request

from loragate.adapter_store.adapters.lineage import UPLOADED, Lineage
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.file_digest import sha256_digest
from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES, SIGNATURE_FILE
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.resources.adapters import LineageFields
from loragate.gateway.schemas.validation import validated
from loragate.gateway.uploads.multipart import Form, FormShape
from loragate.gateway.uploads.spool import receive_form, spool_form
from loragate.gateway.uploads.spool_space import UploadSpace

MAX_CONFIG_BYTES = 1 << 20
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
    small_files={CONFIG_FILE: MAX_CONFIG_BYTES, SIGNATURE_FILE: MAX_SIGNATURE_BYTES},
    spooled=TENSORS_FILE,
)


@dataclass(frozen=True, slots=True)
class AdapterUpload:
    """A complete upload. `tensors` is open for as long as its block lasts."""

    name: str
    alias: str | None
    tags: tuple[str, ...] | None
    description: str | None
    config_json: bytes
    tensors: BinaryIO
    lineage: Lineage = UPLOADED
    signature: bytes | None = None

    def identity(self) -> tuple[bytes, ...]:
        """Return what distinguishes this upload from others. Call it in a thread, because it reads the whole file."""
        fields = (self.name, self.alias or "", repr(self.tags), repr(self.description))
        lineage = orjson.dumps(self.lineage, option=orjson.OPT_SORT_KEYS)
        signature = self.signature or b""
        return (*(text.encode() for text in fields), lineage, self.config_json, signature, sha256_digest(self.tensors))


@asynccontextmanager
async def receive_adapter_upload(
    request: Request, config: GatewayConfig, space: UploadSpace
) -> AsyncIterator[AdapterUpload]:
    """Receive the form of `request`. Raise ApiError for an invalid form, Conflict beyond the tenant's quota, and
    StorageFull if the disk is full."""
    form = Form(ADAPTER_FORM)
    async with receive_form(request, form, config.max_upload_bytes, config, space) as tensors:
        yield _complete(form, tensors)


@asynccontextmanager
async def collect_adapter_upload(
    form: Form, steps: AsyncIterator[None], space: UploadSpace
) -> AsyncIterator[AdapterUpload]:
    """Receive a form that `steps` fill. Raise as `receive_adapter_upload`."""
    async with spool_form(form, steps, space) as tensors:
        yield _complete(form, tensors)


def _complete(form: Form, tensors: BinaryIO) -> AdapterUpload:
    form.require(CONFIG_FILE, TENSORS_FILE, "name")
    return AdapterUpload(
        name=form.text("name") or "",
        alias=form.text("alias"),
        tags=_tags(form),
        description=form.text("description"),
        config_json=form.content(CONFIG_FILE),
        tensors=tensors,
        lineage=_lineage(form),
        signature=form.content(SIGNATURE_FILE) if SIGNATURE_FILE in form.seen else None,
    )


def _tags(form: Form) -> tuple[str, ...] | None:
    """Return the tags, which are in one field, separated by commas."""
    tags = form.text("tags")
    return None if tags is None else tuple(tag for each in tags.split(",") if (tag := each.strip()))


def _lineage(form: Form) -> Lineage:
    """Raise ApiError and Invalid."""
    texts = {field: form.text(field) for field in ("notes", "dataset_digest")}
    values = {field: _json(field, form.text(field)) for field in ("parent_version", "evaluation")}
    return validated(LineageFields, {**texts, **values}).lineage()


def _json(field: str, text: str | None) -> object:
    try:
        return None if text is None else pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        raise InvalidRequest(f"Invalid '{field}': it is not valid JSON.", param=field, code="invalid_value") from None
