"""Whose turn a request takes in the engine, and how long it may wait for it."""

from loragate.adapter_store.principal import TenantPrincipal
from loragate.gateway.config import GatewayConfig
from loragate.v1 import engine_pb2 as pb


def share_of(caller: TenantPrincipal, priority: int | None, config: GatewayConfig) -> pb.Share:
    """The tenant's weight counts against other tenants, the request's priority among the tenant's own."""
    return pb.Share(
        tenant_id=caller.tenant_id,
        weight=caller.weight,
        priority=priority or 0,
        deadline_ms=round(1000 * (config.first_token_seconds or 0)),
    )
