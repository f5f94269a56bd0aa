"""Limits of tenants, keys and adapters."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

from loragate.adapter_store.errors import Invalid

MAX_LIMIT = 10**15  # every store that counts limits is exact up to this number


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a key or an adapter, within its tenant's. None is unlimited. Days and months are in UTC."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrency: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 <= value <= MAX_LIMIT:
                raise Invalid(f"`{field.name}` must be between 0 and {MAX_LIMIT}, or null.", param=field.name)

    def merged(self, changes: Mapping[str, int | None]) -> Self:
        """Return these limits with those in `changes` replaced. Raise Invalid."""
        return replace(self, **changes)

    @property
    def stored(self) -> dict[str, int]:
        """The limits that are set."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}


@dataclass(frozen=True, slots=True)
class TenantLimits(Limits):
    """Limits of a tenant, which also stores adapters, files and jobs."""

    max_adapters: int | None = None
    max_storage_bytes: int | None = None
    max_objects: int | None = None
    max_adapter_rank: int | None = None
    max_unfinished_jobs: int | None = None
    max_job_training_tokens: int | None = None
    max_job_training_seconds: int | None = None
    training_tokens_per_minute: int | None = None
    training_tokens_per_day: int | None = None
    training_tokens_per_month: int | None = None
    training_seconds_per_day: int | None = None
    training_seconds_per_month: int | None = None
    max_unfinished_batches: int | None = None
    max_batch_lines: int | None = None
    max_batch_bytes: int | None = None
    batch_tokens_per_day: int | None = None
    max_training_sessions: int | None = None
    max_training_runs: int | None = None
    max_stored_responses: int | None = None


UNLIMITED = Limits()
UNLIMITED_TENANT = TenantLimits()
