"""What an import's `source` says: a folder of a hub's repository at a commit, or a place in a bucket."""

import re
from dataclasses import dataclass

from loragate.adapter_store.errors import Failure
from loragate.gateway.errors import InvalidRequest

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
        """Where the hub has one of its files."""
        return f"{hub}/{self.repository}/resolve/{self.commit}{self.folder}/{file}"


@dataclass(frozen=True, slots=True)
class BucketSource:
    """`place` is the bucket, or bucket/prefix."""

    place: str


def parse_source(text: str) -> HubSource | BucketSource:
    """Raises InvalidRequest for what is neither, and for a branch where a commit belongs."""
    if match := _HUB.fullmatch(text):
        return HubSource(*match.groups())
    if match := _BUCKET.fullmatch(text):
        return BucketSource(match[1])
    raise InvalidRequest(
        "Invalid 'source': write hf://organisation/name@<the commit's 40 hexadecimal digits>, or s3://bucket/prefix. "
        "A branch or a tag is not enough: what it means can change.",
        param="source",
        code="invalid_value",
    )


def not_allowed(words: str) -> InvalidRequest:
    """The operator does not let this tenant import from there."""
    return InvalidRequest(words, param="source", code="source_not_allowed")


class ImportFailed(Exception):
    """Never holds a URL's path or query: those of redirects are secrets."""

    def __init__(self, code: str, message: str, param: str | None = "source") -> None:
        super().__init__(message)
        self.failure = Failure(code, message, param)
