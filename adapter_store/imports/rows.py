"""Imports, and their conversion from rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from loragate.adapter_store.errors import Failure
from loragate.adapter_store.tables.adapters import AdapterImportRow

IDLE_TIMEOUT = timedelta(minutes=1)
"""After this time without a report, no process works on an import."""

INTERRUPTED = Failure("import_interrupted", "The server stopped before the import was finished; start it again.")
"""The failure of an import that needs a token which no process has any more."""


class ImportStatus(StrEnum):
    """States of an import; the last three are final."""

    QUEUED = "queued"
    FETCHING = "fetching"
    CHECKING = "checking"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


CANCELLABLE = (ImportStatus.QUEUED, ImportStatus.FETCHING)
RUNNING = (*CANCELLABLE, ImportStatus.CHECKING)


@dataclass(frozen=True)
class Import:
    """An import. `bytes_total` is None until the source reports it, `version` until the import is ready; `attempt`
    counts its takeovers."""

    id: str
    source: str
    name: str
    alias: str
    status: ImportStatus
    bytes_done: int
    bytes_total: int | None
    version: int | None
    error: Failure | None
    created_at: datetime
    updated_at: datetime
    attempt: int = 0


def import_of(row: AdapterImportRow, silent_since: datetime) -> Import:
    """Return the import in a row. An idle one is queued for another process, or has failed."""
    status, error = ImportStatus(row.status), None
    if row.error_code is not None:
        error = Failure(row.error_code, row.error_message or "", row.error_param)
    if status in RUNNING and row.updated_at <= silent_since:
        if row.version is not None:
            status = ImportStatus.CHECKING
        elif row.resumable:
            status = ImportStatus.QUEUED
        else:
            status, error = ImportStatus.FAILED, INTERRUPTED
    return Import(
        id=row.id,
        source=row.source,
        name=row.name,
        alias=row.alias,
        status=status,
        bytes_done=row.bytes_done,
        bytes_total=row.bytes_total,
        version=row.version if status is ImportStatus.READY else None,
        error=error,
        created_at=row.created_at,
        updated_at=row.updated_at,
        attempt=row.attempts,
    )
