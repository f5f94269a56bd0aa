"""Tenants."""

from dataclasses import dataclass
from datetime import datetime

from loragate.adapter_store.limits import TenantLimits


@dataclass(frozen=True)
class Tenant:
    """`weight` is the tenant's share of the engine relative to other tenants' weights. One of `signers` must have
    signed what the tenant publishes; without any, the operator's policy holds."""

    id: str
    name: str
    weight: float
    limits: TenantLimits
    created_at: datetime
    updated_at: datetime
    signers: tuple[str, ...] = ()
    store_responses_by_default: bool = False  # of requests that do not say whether their response is stored
