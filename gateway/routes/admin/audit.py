"""/admin/v1/audit."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, WithJsonSchema

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.requirements import Administrator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.admin import AuditEventList, audit_object
from loragate.gateway.objects.common import list_object
from loragate.gateway.openapi.responses import describes

router = APIRouter(prefix="/admin/v1/audit", tags=["admin"])

Word = Annotated[str | None, Query(max_length=320)]
Moment = Annotated[
    AwareDatetime | None,
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]}),
    Query(description="RFC 3339 with a zone, or Unix seconds."),
]


@router.get("")
@describes(AuditEventList)
async def list_audit_events(
    caller: Administrator,
    use: Use,
    actor: Word = None,
    action: Word = None,
    tenant_id: Word = None,
    since: Moment = None,
    until: Moment = None,
    after: Word = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """List recorded actions, newest first. `since` is inclusive, `until` is exclusive."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.audit.list(
            tenant_id=tenant_id, actor=actor, action=action, since=since, until=until, after=after, limit=limit
        )
    return json_response(list_object([audit_object(event) for event in page], has_more=page.has_more))
