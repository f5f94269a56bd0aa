"""Answers about adapters."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.adapters.lineage import MAX_NOTES
from loragate.gateway.openapi.shapes.common import Count, Digest, Moment, Page, Residency

_TEXT = {"type": "string"}
_FILE = {"type": "string", "format": "binary"}
_TEXTS = ("name", "alias", "tags", "description")
_FILES = ("adapter_config.json", "adapter_model.safetensors")

UPLOAD_FORM: dict[str, Any] = {
    "type": "object",
    "description": "The two files that PEFT saves, and the adapter's name. Without `alias` the alias is `default`. "
    "`tags`, separated by commas, and `description` are the adapter's from then on. The rest says where the "
    "version came from; `evaluation` is a JSON object of figures by name.",
    "properties": {
        **dict.fromkeys(_TEXTS, _TEXT),
        "notes": {"type": "string", "maxLength": MAX_NOTES},
        "dataset_digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "parent_version": {"type": "integer", "minimum": 1},
        "evaluation": {"type": "string", "contentMediaType": "application/json"},
        **dict.fromkeys(_FILES, _FILE),
    },
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
    status: Literal["ready", "disabled", "deleted"]
    latest_version: Count | None
    aliases: dict[str, list[AliasArm]]
    limits: Limits
    tags: list[str]
    description: str
    residency: Residency | None
    created_at: Moment
    updated_at: Moment
    deleted_at: Moment | None


class Lineage(TypedDict):
    """`source` is `upload`, `import` or the id of a fine-tuning job."""

    source: str
    dataset_digest: Digest | None
    parent_version: Count | None
    evaluation: dict[str, float]
    notes: str | None


class AdapterVersion(TypedDict):
    """An immutable version; `id` is its adapter's."""

    id: str
    object: Literal["adapter.version"]
    name: str
    version: Count
    digest: Digest
    status: Literal["verifying", "ready", "disabled", "quarantined", "rejected", "deleted"]
    rank: Count
    size_bytes: Count
    base_model: str
    base_digest: Digest
    residency: Residency | None
    lineage: Lineage
    reason: Annotated[str | None, Field(description="Why it is rejected or quarantined.")]
    created_at: Moment
    deleted_at: Moment | None


class Alias(TypedDict):
    """What an alias points at."""

    id: str
    object: Literal["adapter.alias"]
    name: str
    alias: str
    targets: list[AliasArm]


class FirstTokenMs(TypedDict):
    """Milliseconds from receipt to the first token, of requests that got one."""

    mean: float
    p50: Count
    p90: Count
    p95: Count
    p99: Count


class ArmMetrics(TypedDict):
    """One version's. `errors` are requests that failed; `weight` is null where the alias points at it no more."""

    version: Count
    weight: Count | None
    requests: Count
    errors: Count
    prompt_tokens: Count
    completion_tokens: Count
    first_token_ms: FirstTokenMs | None


class AliasMetrics(TypedDict):
    """What each version of an alias did between `start` and `end`."""

    id: str
    object: Literal["adapter.alias.metrics"]
    name: str
    alias: str
    start: Moment
    end: Moment
    arms: list[ArmMetrics]


class AdapterList(Page):
    """Newest first."""

    data: list[Adapter]


class AdapterVersionList(Page):
    """Highest number first; the cursor is a version's number."""

    data: list[AdapterVersion]


class AliasList(Page):
    """All of an adapter's, by name."""

    data: list[Alias]


class DeletedAlias(TypedDict):
    """It is gone; `id` is the adapter's."""

    id: str
    object: Literal["adapter.alias"]
    deleted: Literal[True]
    name: str
    alias: str


class DeletedAdapter(TypedDict):
    """It is gone; `version` where it was one."""

    id: str
    object: Literal["adapter", "adapter.version"]
    deleted: Literal[True]
    name: str
    version: NotRequired[Count]
