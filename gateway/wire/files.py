"""Files and their uploads, in OpenAI's shapes: times are whole seconds of Unix time."""

from typing import Any

from loragate.adapter_store.files.file import File
from loragate.adapter_store.files.upload import FileUpload, Part
from loragate.gateway.wire.common import unix_seconds


def file_object(file: File) -> dict[str, Any]:
    """A file that is there is `processed`. `open_until` is ours: null for a closed one."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": unix_seconds(file.created_at),
        "expires_at": unix_seconds(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose.value,
        "status": "processed",
        "open_until": unix_seconds(file.open_until) if file.is_open else None,
    }


def upload_object(upload: FileUpload) -> dict[str, Any]:
    """`file` is what a completed one became."""
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size_bytes,
        "created_at": unix_seconds(upload.created_at),
        "expires_at": unix_seconds(upload.expires_at),
        "filename": upload.filename,
        "purpose": upload.purpose.value,
        "mime_type": upload.mime_type,
        "status": upload.status.value,
        "file": None if upload.file is None else file_object(upload.file),
    }


def part_object(part: Part) -> dict[str, Any]:
    """OpenAI's has no `bytes`; whoever goes on with an upload needs them."""
    return {
        "id": part.id,
        "object": "upload.part",
        "bytes": part.size_bytes,
        "created_at": unix_seconds(part.created_at),
        "upload_id": part.upload_id,
    }
