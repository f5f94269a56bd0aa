"""The noun of a tenant's API keys."""

from dataclasses import dataclass, field
from datetime import datetime

from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.limits import Limits


@dataclass(frozen=True)
class ApiKey:
    """A key as it is kept: never the secret. `id` is the public part of `lg-<id>-<secret>`."""

    id: str
    tenant_id: str
    name: str
    scopes: tuple[Scope, ...]
    limits: Limits
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_from: str | None  # id of the key that this one replaces
    last_used_at: datetime | None  # late by up to a minute
    created_at: datetime


@dataclass(frozen=True)
class NewApiKey:
    """A key at the one moment when its whole text is known."""

    key: ApiKey
    secret: str = field(repr=False)  # the whole `lg-<id>-<secret>`
