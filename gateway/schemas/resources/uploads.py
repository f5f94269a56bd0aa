"""Bodies of /v1/uploads."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from loragate.prompts.bodies import Body

_Id = Annotated[str, StringConstraints(max_length=64)]


class ExpiresAfter(Body):
    """The lifetime of the file."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


class UploadCreate(Body):
    """Body of POST /v1/uploads. `bytes` is the size of all parts together."""

    filename: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    purpose: Literal["fine-tune", "adapter", "batch"]
    bytes: Annotated[int, Field(ge=1, lt=1 << 53)]
    mime_type: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    expires_after: ExpiresAfter | None = None


class UploadComplete(Body):
    """The parts of the file, in order. `md5` of the whole, in hexadecimal digits, is checked if it is given."""

    part_ids: Annotated[list[_Id], Field(fail_fast=True, min_length=1, max_length=1000)]
    md5: Annotated[str, StringConstraints(pattern="^[0-9a-fA-F]{32}$")] | None = None


FILE_FORM: dict[str, Any] = {
    "type": "object",
    "description": "The file, its purpose and, optionally, its lifetime in seconds from now.",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["fine-tune", "adapter", "batch"]},
        "open": {"type": "string", "enum": ["true", "false"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "string", "pattern": "^[0-9]{4,7}$"},
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
}

PART_FORM: dict[str, Any] = {
    "type": "object",
    "description": "One part, at most 64 MiB.",
    "properties": {"data": {"type": "string", "format": "binary"}},
    "required": ["data"],
    "additionalProperties": False,
}

LINES_FORM: dict[str, Any] = {
    "type": "object",
    "description": "Lines of JSON, at most 65,536 and 8 MiB.",
    "properties": {"data": {"type": "string", "format": "binary"}},
    "required": ["data"],
    "additionalProperties": False,
}
