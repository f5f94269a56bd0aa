"""Adapters, their versions and their aliases."""

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store import limits as store_limits
from loragate.adapter_store.adapters import adapter as stored
from loragate.adapter_store.adapters import lineage as stored_lineage
from loragate.adapter_store.timestamps import rfc3339
from loragate.gateway.engine.residency import Holdings, Tier
from loragate.gateway.objects.common import Count, Digest, Moment, Page, Residency
from loragate.peft_format import classification

_SHOWN_LABELS = 100


class Limits(TypedDict):
    """Limits of a key or an adapter. Null means unlimited."""

    requests_per_minute: Count | None
    tokens_per_minute: Count | None
    max_concurrency: Count | None
    tokens_per_day: Count | None
    tokens_per_month: Count | None


class AliasTarget(TypedDict):
    """`weight` is relative to those of the other targets."""

    version: Count
    weight: Count


class Adapter(TypedDict):
    """An adapter with its aliases."""

    id: str
    object: Literal["adapter"]
    name: str
    status: Literal["ready", "disabled", "deleted"]
    latest_version: Count | None
    aliases: dict[str, list[AliasTarget]]
    limits: Limits
    tags: list[str]
    description: str
    residency: Residency | None
    created_at: Moment
    updated_at: Moment
    deleted_at: Moment | None


class Lineage(TypedDict):
    """The origin of a version. `source` is `upload`, `import` or the id of a fine-tuning job."""

    source: str
    dataset_digest: Digest | None
    parent_version: Count | None
    evaluation: dict[str, float]
    notes: str | None


class Classifier(TypedDict):
    """What a head for labels is for. `labels` has the first 100 of `num_labels`."""

    task: Literal["SEQ_CLS", "TOKEN_CLS"]
    num_labels: Count
    labels: list[str]
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None


class AdapterVersion(TypedDict):
    """An immutable version of an adapter. `id` is the id of the adapter."""

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
    classifier: Annotated[Classifier | None, Field(description="The labels of a classifier; null: it generates.")]
    signer: Annotated[str | None, Field(description="The signer whose signature was verified; null: none was.")]
    reason: Annotated[str | None, Field(description="The reason why it is rejected or quarantined.")]
    created_at: Moment
    deleted_at: Moment | None


class Alias(TypedDict):
    """An alias and the versions that it points to."""

    id: str
    object: Literal["adapter.alias"]
    name: str
    alias: str
    targets: list[AliasTarget]


class AdapterList(Page):
    """Newest first."""

    data: list[Adapter]


class AdapterVersionList(Page):
    """Highest number first; the cursor is a version's number."""

    data: list[AdapterVersion]


class AliasList(Page):
    """All aliases of an adapter, by name."""

    data: list[Alias]


class DeletedAlias(TypedDict):
    """Confirms that the alias was deleted. `id` is the id of the adapter."""

    id: str
    object: Literal["adapter.alias"]
    deleted: Literal[True]
    name: str
    alias: str


class DeletedAdapter(TypedDict):
    """Confirms that the adapter was deleted or, if `version` is present, that version of it."""

    id: str
    object: Literal["adapter", "adapter.version"]
    deleted: Literal[True]
    name: str
    version: NotRequired[Count]


class MergedSize(TypedDict):
    """The size of a merged export: that of the tar archive, and so its `content-length`."""

    object: Literal["adapter.version.merged"]
    size_bytes: Count


def limits_object(limits: store_limits.Limits) -> Limits:
    """Return the limits that tenants, keys and adapters have in common."""
    return {
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "max_concurrency": limits.max_concurrency,
        "tokens_per_day": limits.tokens_per_day,
        "tokens_per_month": limits.tokens_per_month,
    }


def adapter_object(adapter: stored.Adapter, holdings: Holdings) -> Adapter:
    """Return an adapter with its aliases, and the engine's tier that holds what they point to."""
    return {
        "id": adapter.id,
        "object": "adapter",
        "name": adapter.name,
        "status": adapter.status.value,
        "latest_version": adapter.latest_version,
        "aliases": {name: _alias_targets(targets) for name, targets in adapter.aliases.items()},
        "limits": limits_object(adapter.limits),
        "tags": list(adapter.description.tags),
        "description": adapter.description.text,
        "residency": holdings.tier(adapter.tenant_id, adapter.routed.values()),
        "created_at": rfc3339(adapter.created_at),
        "updated_at": rfc3339(adapter.updated_at),
        "deleted_at": rfc3339(adapter.deleted_at),
    }


def version_object(version: stored.AdapterVersion, residency: Tier | None) -> AdapterVersion:
    """Return a version. `residency` is the engine's tier that holds it."""
    return {
        "id": version.adapter_id,
        "object": "adapter.version",
        "name": version.name,
        "version": version.version,
        "digest": version.digest,
        "status": version.status.value,
        "rank": version.rank,
        "size_bytes": version.size_bytes,
        "base_model": version.base_model,
        "base_digest": version.base_digest,
        "residency": residency,
        "lineage": _lineage_object(version.lineage),
        "classifier": None if version.classifier is None else _classifier_object(version.classifier),
        "signer": version.signer,
        "reason": version.reason,
        "created_at": rfc3339(version.created_at),
        "deleted_at": rfc3339(version.deleted_at),
    }


def _classifier_object(classifier: classification.Classifier) -> Classifier:
    return {
        "task": classifier.task.value,
        "num_labels": len(classifier.labels),
        "labels": list(classifier.labels[:_SHOWN_LABELS]),
        "problem_type": None if classifier.problem_type is None else classifier.problem_type.value,
    }


def _lineage_object(lineage: stored_lineage.Lineage) -> Lineage:
    return {
        "source": lineage.source,
        "dataset_digest": lineage.dataset_digest,
        "parent_version": lineage.parent_version,
        "evaluation": dict(lineage.evaluation),
        "notes": lineage.notes,
    }


def alias_object(name: str, alias: str, targets: Sequence[stored.AliasTarget]) -> Alias:
    """Return an alias of the adapter `name`."""
    id_ = f"{name}@{alias}"
    return {"id": id_, "object": "adapter.alias", "name": name, "alias": alias, "targets": _alias_targets(targets)}


def _alias_targets(targets: Sequence[stored.AliasTarget]) -> list[AliasTarget]:
    return [{"version": target.version, "weight": target.weight} for target in targets]


def deleted_adapter(adapter_id: str, name: str) -> DeletedAdapter:
    """Return the confirmation that an adapter was deleted."""
    return {"id": adapter_id, "object": "adapter", "deleted": True, "name": name}


def deleted_version(adapter_id: str, name: str, version: int) -> DeletedAdapter:
    """Return the confirmation that a version was deleted."""
    return {"id": adapter_id, "object": "adapter.version", "deleted": True, "name": name, "version": version}


def deleted_alias(adapter_id: str, name: str, alias: str) -> DeletedAlias:
    """Return the confirmation that an alias was deleted."""
    return {"id": adapter_id, "object": "adapter.alias", "deleted": True, "name": name, "alias": alias}


def merged_size_object(size: int) -> MergedSize:
    """Return the size of a merged export in bytes."""
    return {"object": "adapter.version.merged", "size_bytes": size}
