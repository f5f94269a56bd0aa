"""Adapters and their versions, as repositories return them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.adapters.lineage import UPLOADED, Lineage
from loragate.adapter_store.limits import UNLIMITED, Limits
from loragate.peft_format.classification import Classifier

DEFAULT_ALIAS = "default"


class VersionStatus(StrEnum):
    """States of a version, which is invisible before it is ready. `reason` explains rejection and quarantine."""

    VERIFYING = "verifying"  # its bytes are stored; no engine has tried it yet
    READY = "ready"
    DISABLED = "disabled"  # by its tenant
    QUARANTINED = "quarantined"  # its bytes are corrupt
    REJECTED = "rejected"  # it was never ready
    DELETED = "deleted"


PUBLISHED = (VersionStatus.READY, VersionStatus.DISABLED, VersionStatus.QUARANTINED)
"""The states in which tenants see a version and aliases can point at it."""


class AdapterStatus(StrEnum):
    READY = "ready"
    DISABLED = "disabled"
    DELETED = "deleted"


@dataclass(frozen=True)
class AliasTarget:
    """One target of an alias: `weight` is a positive integer, relative to the other targets' weights."""

    version: int
    weight: int = 1


Aliases = Mapping[str, tuple[AliasTarget, ...]]


@dataclass(frozen=True)
class Adapter:
    """A tenant's adapter. `aliases` are ordered by name, their targets by version; `routed` has the digests of these
    versions."""

    id: str
    tenant_id: str
    name: str
    status: AdapterStatus
    latest_version: int | None  # the highest published version that is not deleted
    aliases: Aliases
    routed: Mapping[int, str]
    limits: Limits
    description: Description
    placement: str | None  # see desired_state.Placement
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None


@dataclass(frozen=True)
class AdapterVersion:
    """An immutable version. `digest` is "sha256:<hex>" over the canonical config and the tensors; the signature of
    `signer` was verified when it was published."""

    adapter_id: str
    name: str
    version: int
    digest: str
    status: VersionStatus
    rank: int  # the largest of its modules
    size_bytes: int  # of adapter_model.safetensors
    base_model: str
    base_digest: str
    created_at: datetime
    deleted_at: datetime | None = None
    reason: str | None = None
    lineage: Lineage = UPLOADED
    signer: str | None = None
    classifier: Classifier | None = None  # None: it generates


@dataclass(frozen=True)
class ResolvedAdapter:
    """The meaning of a request's `model` at one moment; a request keeps it until it ends."""

    adapter_id: str
    name: str
    version: int
    digest: str
    size_bytes: int
    base_digest: str
    limits: Limits = UNLIMITED
    alias: str | None = None  # the one requested; None if the version itself was requested
    classifier: Classifier | None = None  # None: it generates
