"""Sessions of training clients."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Trainer
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import NotFound
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.training import session_object
from loragate.gateway.schemas.training.sessions import SessionCreate, SessionFinish, SessionRef

router = APIRouter(prefix="/api/v1", tags=["training"], include_in_schema=False)

_GONE = 410
_MAX_LISTED = 1000


@router.post("/create_session")
async def create_session(
    caller: Trainer, by: By, body: Annotated[SessionCreate, Depends(JsonBody(SessionCreate))], use: Use
) -> Response:
    """Create a session, which expires when its client sends no heartbeat."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        session = await scope.training_sessions.create(
            caller.key_id,
            sdk_version=body.sdk_version,
            tags=body.tags,
            user_metadata=body.user_metadata or {},
            display_name=body.display_name,
        )
    return json_response({"session_id": session.id, "type": "create_session"})


@router.post("/session_heartbeat")
async def heartbeat(caller: Trainer, body: Annotated[SessionRef, Depends(JsonBody(SessionRef))], use: Use) -> Response:
    """Record that the client lives. Responds 410 once the session has ended."""
    async with use.store.tenant(caller.tenant_id, write=True) as scope:
        alive = await scope.training_sessions.heartbeat(body.session_id)
    return json_response({"type": "session_heartbeat"}, 200 if alive else _GONE)


@router.post("/sessions/{session_id}/finish")
async def finish(
    session_id: str,
    caller: Trainer,
    by: By,
    body: Annotated[SessionFinish, Depends(JsonBody(SessionFinish))],
    use: Use,
) -> Response:
    """End a session: its runs end, and its unnamed samplers go."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.training_sessions.finish(session_id, body.reason.type)
    return json_response({"status": "finished"})


@router.get("/sessions")
async def list_sessions(
    caller: Trainer,
    use: Use,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 20,
    offset: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
) -> Response:
    """List the ids of sessions, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.training_sessions.list(offset=offset, limit=limit)
    return json_response({"sessions": [each.id for each in found]})


@router.post("/sessions/search")
async def search(caller: Trainer) -> Response:
    """Reject a search."""
    raise NotFound("Sessions are not searched on this server: list them.", code="unsupported")


@router.get("/sessions/{session_id}")
async def get_session(session_id: str, caller: Trainer, use: Use) -> Response:
    """Get a session with the ids of its runs and samplers."""
    async with use.store.tenant(caller.tenant_id) as scope:
        session = await scope.training_sessions.get(session_id)
        runs = await scope.training_runs.of_session(session_id)
        samplers = await scope.training_samplers.of_session(session_id)
    return json_response(session_object(session, list(runs), list(samplers)))
