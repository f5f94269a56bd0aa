"""Answers about adapters."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Digest, Moment, Page, Residency

_TEXT = {"type": "string"}
_FILE = {"type": "string", "format": "binary"}
_TEXTS = ("name", "alias", "tags", "description")
_FILES = ("adapter_config.json", "adapter_model.safetensors")

UPLOAD_FORM: dict[str, Any] = {
    "type": "object",
    "description": "The two files that PEFT saves, and the adapter's name. Without `alias` the alias is `default`. "
    "`tags`, separated by commas, and `description` are the adapter's from then on.",
    "properties": {**dict.fromkeys(_TEXTS, _TEXT), **dict.fromkeys(_FILES, _FILE)},
    "required": ["name", *_FILES],
    "additionalProperties": False,
}


class Limits(TypedDict):
    """Null is unlimited."""

    requests_per_minute: Count | None
    tokens_per_minute: Count | None
    max_concurrency: Count | None
    tokens_per_day: Count | None
    tokens_per_month: Count | None


class AliasArm(TypedDict):
    """`weight` is relative to those of the other arms."""

    version: Count
    weight: Count


class Adapter(TypedDict):
    """An adapter with its aliases."""

    id: str
    object: Literal["adapter"]
    name: str
    latest_version: Count | None
    aliases: dict[str, list[AliasArm]]
    limits: Limits
    tags: list[str]
    description: str
    residency: Residency | None
    created_at: Moment
    updated_at: Moment


class AdapterVersion(TypedDict):
    """An immutable version; `id` is its adapter's."""

    id: str
    object: Literal["adapter.version"]
    name: str
    version: Count
    digest: Digest
    status: Literal["ready"]
    rank: Count
    size_bytes: Count
    base_model: str
    base_digest: Digest
    residency: Residency | None
    created_at: Moment


class Alias(TypedDict):
    """What an alias points at."""

    id: str
    object: Literal["adapter.alias"]
    name: str
    alias: str
    targets: list[AliasArm]


class AdapterList(Page):
    """Newest first."""

    data: list[Adapter]


class AdapterVersionList(Page):
    """Highest number first; the cursor is a version's number."""

    data: list[AdapterVersion]


class AliasList(Page):
    """All of an adapter's, by name."""

    data: list[Alias]


class DeletedAdapter(TypedDict):
    """It is gone; `version` where it was one."""

    id: str
    object: Literal["adapter", "adapter.version"]
    deleted: Literal[True]
    name: str
    version: NotRequired[Count]
