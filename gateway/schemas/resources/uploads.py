"""Bodies of /v1/uploads."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from loragate.prompts.body import Body

_Id = Annotated[str, StringConstraints(max_length=64)]


class ExpiresAfter(Body):
    """How long the file is to live."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


class UploadCreate(Body):
    """`bytes` is what all parts will be together."""

    filename: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    purpose: Literal["fine-tune", "adapter"]
    bytes: Annotated[int, Field(ge=1, lt=1 << 53)]
    mime_type: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    expires_after: ExpiresAfter | None = None


class UploadComplete(Body):
    """The parts in order; `md5` of the whole, in hexadecimal digits, is checked where it is given."""

    part_ids: Annotated[list[_Id], Field(fail_fast=True, min_length=1, max_length=1000)]
    md5: Annotated[str, StringConstraints(pattern="^[0-9a-fA-F]{32}$")] | None = None
