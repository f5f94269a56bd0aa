"""The order in which the engine serves requests, and how long they may wait."""

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import engine_pb2 as pb


def share_of(caller: TenantPrincipal, priority: int | None, config: GatewayConfig) -> pb.Share:
    """Return the share of a request. The tenant's weight counts among tenants, the request's priority among those of
    the same tenant."""
    return share_of_tenant(caller.tenant_id, caller.weight, config, priority or 0)


def share_of_tenant(tenant_id: str, weight: float, config: GatewayConfig, priority: int = 0) -> pb.Share:
    """Return a share of the tenant, for work that is not a request."""
    deadline_ms = round(1000 * (config.first_token_deadline_seconds or 0))
    return pb.Share(tenant_id=tenant_id, weight=weight, priority=priority, deadline_ms=deadline_ms)
