"""How much tenants, keys and adapters may use."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

from loragate.adapter_store.errors import Invalid

MAX_LIMIT = 10**15  # whole numbers up to here are exact wherever limits are counted


@dataclass(frozen=True, slots=True)
class Limits:
    """None is unlimited. Days and months are UTC's. What a key or an adapter may use is a part of its tenant's."""

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
        """With the limits that `changes` names replaced. Raises Invalid."""
        return replace(self, **changes)

    @property
    def stored(self) -> dict[str, int]:
        """What is limited."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}


@dataclass(frozen=True, slots=True)
class TenantLimits(Limits):
    """A tenant's, who also keeps things here."""

    max_adapters: int | None = None
    max_storage_bytes: int | None = None
    max_adapter_rank: int | None = None
    max_unfinished_jobs: int | None = None


UNLIMITED = Limits()
UNLIMITED_TENANT = TenantLimits()
