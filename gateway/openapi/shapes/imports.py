"""Answers about imports."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Moment, Page


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
