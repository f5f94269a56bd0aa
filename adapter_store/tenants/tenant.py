"""Tenants."""

from dataclasses import dataclass
from datetime import datetime

from loragate.adapter_store.limits import TenantLimits


@dataclass(frozen=True)
class Tenant:
    """`weight` is the tenant's share of the engine relative to other tenants' weights."""

    id: str
    name: str
    weight: float
    limits: TenantLimits
    created_at: datetime
    updated_at: datetime
