"""The `source` of an import: a folder of a hub's repository at a commit, or a prefix in a bucket."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.errors import Failure
from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES, SIGNATURE_FILE
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.uploads.adapter_upload import MAX_CONFIG_BYTES

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_HUB = re.compile(rf"hf://({_PART}/{_PART})((?:/{_PART}){{0,8}})@([0-9a-f]{{40}})")
_BUCKET = re.compile(rf"s3://([a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]((?:/{_PART}){{0,16}}))/?")


@dataclass(frozen=True, slots=True)
class HubSource:
    """`folder` is empty or begins with a slash."""

    repository: str
    folder: str
    commit: str

    def url(self, hub: str, file: str) -> str:
        """Return the URL of one of its files."""
        return f"{hub}/{self.repository}/resolve/{self.commit}{self.folder}/{file}"


@dataclass(frozen=True, slots=True)
class BucketSource:
    """`place` is the bucket, or bucket/prefix."""

    place: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to fetch. An `optional` one is skipped where the source does not have it."""

    name: str
    max_bytes: int
    optional: bool = False


def files_to_fetch(limit: int, *, signed: bool) -> Sequence[SourceFile]:
    """Return PEFT's two files and, for a server that verifies signatures, the one that a source may also have."""
    signature = [SourceFile(SIGNATURE_FILE, MAX_SIGNATURE_BYTES, optional=True)] if signed else []
    config = SourceFile(CONFIG_FILE, min(MAX_CONFIG_BYTES, limit))
    return [config, *signature, SourceFile(TENSORS_FILE, limit)]


def parse_source(text: str) -> HubSource | BucketSource:
    """Parse `text`. Raise InvalidRequest for anything else, and for a branch in place of a commit."""
    if match := _HUB.fullmatch(text):
        return HubSource(*match.groups())
    if match := _BUCKET.fullmatch(text):
        return BucketSource(match[1])
    raise InvalidRequest(
        "Invalid 'source': write hf://organisation/name@<the commit's 40 hexadecimal digits>, or s3://bucket/prefix. "
        "A branch or a tag is not enough, because it can change.",
        param="source",
        code="invalid_value",
    )


def source_not_allowed(message: str) -> InvalidRequest:
    """Return the error for a source from which the operator does not allow this tenant to import."""
    return InvalidRequest(message, param="source", code="source_not_allowed")


class ImportFailed(Exception):
    """An import failed. The message never contains a URL's path or query, because those of redirects are secrets."""

    def __init__(self, code: str, message: str, param: str | None = "source") -> None:
        super().__init__(message)
        self.failure = Failure(code, message, param)
