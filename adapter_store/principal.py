"""Who is calling, and what they may do."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    """What a tenant's key is good for; ALL includes the scopes of the future."""

    ALL = "all"
    INFERENCE = "inference"
    ADAPTERS_READ = "adapters:read"
    ADAPTERS_WRITE = "adapters:write"


@dataclass(frozen=True)
class TenantPrincipal:
    """A tenant's caller, proved by one of its keys. An immutable snapshot: cache it only for a short time."""

    tenant_id: str
    tenant_name: str
    weight: float
    key_id: str
    scopes: frozenset[Scope]
    expires_at: datetime | None

    def __post_init__(self) -> None:
        assert self.tenant_id
        assert self.scopes

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ALL in self.scopes


@dataclass(frozen=True)
class AdminPrincipal:
    """The operator, proved by the admin key. Has no tenant and no access to tenants' own routes."""


Principal = TenantPrincipal | AdminPrincipal
