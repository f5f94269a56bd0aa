"""Uploads of large files in parts: after a lost connection only one part is sent again."""

import hashlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress, TaskID

from loragate.cli.client.http.api import Api, ConnectionFailed, path

T = TypeVar("T")

SMALL_BYTES = 64 << 20  # files up to this size go in one request
PART_BYTES = 16 << 20
_MAX_ATTEMPTS = 8
_MAX_PAUSE_SECONDS = 15.0


def send_in_parts(api: Api, file: Path, progress: Progress, task: TaskID, purpose: str = "adapter") -> str:
    """Upload the file and return its id. Raise CliError, and ConnectionFailed when every retry fails."""
    announced = {
        "filename": file.name,
        "purpose": purpose,
        "bytes": file.stat().st_size,
        "mime_type": "application/octet-stream",
    }
    upload = api.call("POST", "/v1/uploads", json=announced)
    parts, digest = [], hashlib.md5(usedforsecurity=False)
    with file.open("rb") as source:
        while part := source.read(PART_BYTES):
            parts.append(_send_part(api, upload["id"], part))
            digest.update(part)
            progress.advance(task, len(part))
    described = {"part_ids": parts, "md5": digest.hexdigest()}
    done = retry(lambda: api.call("POST", path("v1", "uploads", upload["id"], "complete"), json=described))
    return str(done["file"]["id"])


def publish(api: Api, fields: dict[str, str], tensors_file_id: str) -> dict[str, Any]:
    """Publish an uploaded file as a new version and delete the file. Retries never create a second version."""
    body = {**fields, "tensors_file_id": tensors_file_id}
    once = {"Idempotency-Key": uuid.uuid4().hex}
    version = dict(retry(lambda: api.call("POST", "/v1/adapters", json=body, headers=once)))
    api.call("DELETE", path("v1", "files", tensors_file_id))
    return version


def retry(send: Callable[[], T]) -> T:
    """Return the result of `send`, retried with growing pauses while the connection fails."""
    for attempt in range(_MAX_ATTEMPTS - 1):
        try:
            return send()
        except ConnectionFailed:
            time.sleep(min(0.2 * 2**attempt, _MAX_PAUSE_SECONDS))
    return send()


def _send_part(api: Api, upload_id: str, part: bytes) -> str:
    files = {"data": ("part", part, "application/octet-stream")}
    return str(retry(lambda: api.call("POST", path("v1", "uploads", upload_id, "parts"), files=files))["id"])
