"""Answers about files and uploads. Times are Unix time in seconds, as in OpenAI's API."""

from typing import Any, Literal

from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Page

FILE_FORM: dict[str, Any] = {
    "type": "object",
    "description": "The file, what it is for, and perhaps how long it is to live, in seconds from now.",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["fine-tune", "adapter"]},
        "open": {"type": "string", "enum": ["true", "false"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "string", "pattern": "^[0-9]{4,7}$"},
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
}
PART_FORM: dict[str, Any] = {
    "type": "object",
    "description": "At most 64 MiB.",
    "properties": {"data": {"type": "string", "format": "binary"}},
    "required": ["data"],
    "additionalProperties": False,
}
LINES_FORM: dict[str, Any] = {
    "type": "object",
    "description": "JSON lines, at most 8 MiB.",
    "properties": {"data": {"type": "string", "format": "binary"}},
    "required": ["data"],
    "additionalProperties": False,
}
_Purpose = Literal["fine-tune", "fine-tune-results", "adapter"]


class File(TypedDict):
    """A file; null in `expires_at`: it stays until it is deleted; null in `open_until`: it is closed."""

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
    """It is gone."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class Upload(TypedDict):
    """A file that comes in parts, and what a completed one became."""

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
    """A part that came."""

    id: str
    object: Literal["upload.part"]
    bytes: Count
    created_at: Count
    upload_id: str


class UploadPartList(Page):
    """All of an upload's, in the order in which they came."""

    data: list[UploadPart]
