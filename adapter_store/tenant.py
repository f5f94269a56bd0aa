"""The noun of tenants."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Tenant:
    """`weight` is the tenant's share of the engine relative to other tenants' weights."""

    id: str
    name: str
    weight: float
    created_at: datetime
    updated_at: datetime
