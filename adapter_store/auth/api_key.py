"""API keys of tenants."""

from dataclasses import dataclass, field
from datetime import datetime

from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.limits import Limits


@dataclass(frozen=True)
class ApiKey:
    """A stored key, without its secret. `id` is the public part of `lg-<id>-<secret>`."""

    id: str
    tenant_id: str
    name: str
    scopes: tuple[Scope, ...]
    limits: Limits
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_from: str | None  # id of the key that this one replaces
    last_used_at: datetime | None  # up to a minute late
    created_at: datetime


@dataclass(frozen=True)
class NewApiKey:
    """A new key with its whole text, which is known only now."""

    key: ApiKey
    secret: str = field(repr=False)  # the whole `lg-<id>-<secret>`
