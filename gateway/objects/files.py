"""Files and their uploads, in OpenAI's shapes: times are whole seconds of Unix time."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.files import file as stored
from loragate.adapter_store.files.upload import FileUpload, Part
from loragate.gateway.objects.common import Count, Page, unix_seconds

_Purpose = Literal["fine-tune", "fine-tune-results", "adapter", "batch", "batch_output"]


class File(TypedDict):
    """A file. `expires_at` is null if it stays until it is deleted; `open_until` is null if it is closed."""

    id: str
    object: Literal["file"]
    bytes: Count
    created_at: Count
    expires_at: Count | None
    filename: str
    purpose: _Purpose
    status: Literal["processed"]
    open_until: Count | None


class FileList(Page):
    """Newest first, or oldest first with `order=asc`."""

    data: list[File]


class DeletedFile(TypedDict):
    """Confirms that the file was deleted."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class Upload(TypedDict):
    """A file that is uploaded in parts. `file` is null until the upload is completed."""

    id: str
    object: Literal["upload"]
    bytes: Count
    created_at: Count
    expires_at: Count
    filename: str
    purpose: _Purpose
    mime_type: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: File | None


class UploadPart(TypedDict):
    """A part that was received."""

    id: str
    object: Literal["upload.part"]
    bytes: Count
    created_at: Count
    upload_id: str


class UploadPartList(Page):
    """All parts of an upload, in the order in which they were received."""

    data: list[UploadPart]


def file_object(file: stored.File) -> File:
    """Return a file. Every stored file is `processed`; `open_until` is not in OpenAI's API."""
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


def upload_object(upload: FileUpload) -> Upload:
    """Return an upload, with its file if it is completed."""
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


def part_object(part: Part) -> UploadPart:
    """Return a part. `bytes` is not in OpenAI's API; clients need it to resume an upload."""
    return {
        "id": part.id,
        "object": "upload.part",
        "bytes": part.size_bytes,
        "created_at": unix_seconds(part.created_at),
        "upload_id": part.upload_id,
    }


def deleted_file(file_id: str) -> DeletedFile:
    """Return the confirmation that a file was deleted."""
    return {"id": file_id, "object": "file", "deleted": True}
