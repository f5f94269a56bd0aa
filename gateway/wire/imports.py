"""Imports."""

from typing import Any

from loragate.adapter_store.imports.rows import Import
from loragate.gateway.wire.common import rfc3339


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
