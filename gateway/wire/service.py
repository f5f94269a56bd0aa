"""How a tenant was served."""

from dataclasses import asdict
from typing import Any

from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.service_quality import Reason, Service, ServiceQuery
from loragate.gateway.wire.times import rfc3339


def service_object(query: ServiceQuery, service: Service) -> dict[str, Any]:
    """Every reason is told, also one that nobody was turned away for."""
    return {
        "object": "usage.service",
        "start": rfc3339(query.start),
        "end": rfc3339(query.end),
        "requests": service.requests,
        "errors": service.errors,
        "first_token_ms": first_token_object(service.first_token),
        "turned_away": {reason.value: service.turned_away.get(reason, 0) for reason in Reason},
    }


def first_token_object(first: FirstToken | None) -> dict[str, Any] | None:
    """Null where no request got one."""
    return None if first is None else asdict(first)
