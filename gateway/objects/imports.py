"""Imports of adapters."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.timestamps import rfc3339
from loragate.gateway.objects.common import Count, Moment, Page


class ImportFailure(TypedDict):
    """The reason why an import failed."""

    code: str
    message: str
    param: str | None


class AdapterImport(TypedDict):
    """An import of an adapter. `bytes_total` is null until the source has reported it, `version` until the import is
    ready, and `error` unless it failed."""

    id: str
    object: Literal["adapter.import"]
    source: str
    name: str
    alias: str
    status: Literal["queued", "fetching", "checking", "ready", "failed", "cancelled"]
    bytes_done: Count
    bytes_total: Count | None
    version: Count | None
    error: ImportFailure | None
    created_at: Moment
    updated_at: Moment


class AdapterImportList(Page):
    """Newest first."""

    data: list[AdapterImport]


def import_object(found: Import) -> AdapterImport:
    """Return an import."""
    error = found.error
    return {
        "id": found.id,
        "object": "adapter.import",
        "source": found.source,
        "name": found.name,
        "alias": found.alias,
        "status": found.status.value,
        "bytes_done": found.bytes_done,
        "bytes_total": found.bytes_total,
        "version": found.version,
        "error": None if error is None else {"code": error.code, "message": error.message, "param": error.param},
        "created_at": rfc3339(found.created_at),
        "updated_at": rfc3339(found.updated_at),
    }
