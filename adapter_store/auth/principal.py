"""Principals: the caller of a request, and its permissions."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from loragate.adapter_store.limits import UNLIMITED, UNLIMITED_TENANT, Limits, TenantLimits


class Scope(StrEnum):
    """Permissions of a tenant's key. ALL includes future scopes, but never ADMIN or EXPORT."""

    ALL = "all"
    INFERENCE = "inference"
    ADAPTERS_READ = "adapters:read"
    ADAPTERS_WRITE = "adapters:write"
    FINETUNE = "finetune"
    TRAIN = "train"  # the training API
    USAGE = "usage"
    EXPORT = "export"  # of the base model's weights, merged with an adapter's
    ADMIN = "admin"  # the tenant's own keys and audit log


@dataclass(frozen=True)
class TenantPrincipal:
    """A tenant, authenticated by one of its keys."""

    tenant_id: str
    tenant_name: str
    weight: float
    key_id: str
    scopes: frozenset[Scope]
    limits: TenantLimits = UNLIMITED_TENANT
    key_limits: Limits = UNLIMITED
    store_responses_by_default: bool = False

    def __post_init__(self) -> None:
        assert self.tenant_id
        assert self.scopes

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or (Scope.ALL in self.scopes and scope not in (Scope.ADMIN, Scope.EXPORT))

    @property
    def actor(self) -> str:
        """The caller's name in the audit log."""
        return f"api_key:{self.key_id}"


@dataclass(frozen=True)
class AdminPrincipal:
    """An operator, authenticated by the installation's admin key, by a named one, which is `key_id`, or as `subject` by
    the identity provider.

    It has no tenant and no access to tenants' own routes.
    """

    subject: str | None = None
    key_id: str | None = None
    tenant_id: ClassVar[None] = None

    @property
    def actor(self) -> str:
        """The caller's name in the audit log."""
        if self.subject is not None:
            return f"oidc:{self.subject}"
        return "admin_key" if self.key_id is None else f"admin_key:{self.key_id}"


Principal = TenantPrincipal | AdminPrincipal


@dataclass(frozen=True)
class Authentication:
    """The result of authenticating a key at one moment. Cache it only for a short time."""

    principal: Principal
    seconds_left: float  # from that moment, by the database's clock, until the key expires; inf for never
