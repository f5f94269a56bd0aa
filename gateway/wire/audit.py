"""Events of the audit log."""

from typing import Any

from loragate.adapter_store.audit.log import AuditEvent
from loragate.gateway.wire.common import rfc3339


def audit_object(event: AuditEvent) -> dict[str, Any]:
    """One act."""
    return {
        "id": event.id,
        "object": "audit.event",
        "created_at": rfc3339(event.created_at),
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "tenant_id": event.tenant_id,
        "before": event.before,
        "after": event.after,
        "request_id": event.request_id,
    }
