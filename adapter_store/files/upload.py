"""Uploads in parts."""

from dataclasses import dataclass
from datetime import datetime

from loragate.adapter_store.files.file import File, Purpose
from loragate.adapter_store.tables.files import UploadStatus


@dataclass(frozen=True)
class FileUpload:
    """A file that is sent in parts; `size_bytes` is their sum, `file` the result."""

    id: str
    filename: str
    purpose: Purpose
    mime_type: str
    size_bytes: int
    status: UploadStatus
    created_at: datetime
    expires_at: datetime
    file: File | None = None


@dataclass(frozen=True)
class Part:
    id: str
    upload_id: str
    size_bytes: int
    created_at: datetime
