"""Imports."""

from typing import Any, Literal

from typing_extensions import TypedDict

from loragate.adapter_store.imports.rows import Import
from loragate.gateway.objects.common import Count, Moment, Page, rfc3339


class ImportFailure(TypedDict):
    """Why an import failed."""

    code: str
    message: str
    param: str | None


class AdapterImport(TypedDict):
    """An adapter that the server fetches. `bytes_total` is null until the source has said it, `version` until ready."""

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


def import_object(found: Import) -> dict[str, Any]:
    """One import; `error` is null unless it failed, `version` until it is ready."""
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
        "error": error and {"code": error.code, "message": error.message, "param": error.param},
        "created_at": rfc3339(found.created_at),
        "updated_at": rfc3339(found.updated_at),
    }
