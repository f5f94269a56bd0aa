"""A large file in parts: a connection that drops costs one of them, which is sent again."""

import hashlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress, TaskID

from loragate.cli.client.http.api import Api, Broken
from loragate.cli.client.http.paths import path

T = TypeVar("T")

SMALL_BYTES = 64 << 20  # what is not larger goes in one request
PART_BYTES = 16 << 20
_TRIES = 8
_LONGEST_PAUSE = 15.0


def send_in_parts(api: Api, file: Path, progress: Progress, task: TaskID, purpose: str = "adapter") -> str:
    """The id that the server gave the file. Raises Refusal; Broken when the connection does not come back."""
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
    told = {"part_ids": parts, "md5": digest.hexdigest()}
    done = again(lambda: api.call("POST", path("v1", "uploads", upload["id"], "complete"), json=told))
    return str(done["file"]["id"])


def publish(api: Api, fields: dict[str, str], config: str, tensors_file_id: str) -> dict[str, Any]:
    """The adapter's new version, made once however often the connection drops. The file is removed after that."""
    body = {**fields, "adapter_config": config, "tensors_file_id": tensors_file_id}
    once = {"Idempotency-Key": uuid.uuid4().hex}
    version = dict(again(lambda: api.call("POST", "/v1/adapters", json=body, headers=once)))
    api.call("DELETE", path("v1", "files", tensors_file_id))
    return version


def again(send: Callable[[], T]) -> T:
    """What `send` returns, tried again while the connection breaks."""
    for attempt in range(_TRIES - 1):
        try:
            return send()
        except Broken:
            time.sleep(min(0.2 * 2**attempt, _LONGEST_PAUSE))
    return send()


def _send_part(api: Api, upload_id: str, part: bytes) -> str:
    files = {"data": ("part", part, "application/octet-stream")}
    return str(again(lambda: api.call("POST", path("v1", "uploads", upload_id, "parts"), files=files))["id"])
