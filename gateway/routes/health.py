"""GET /healthz and /readyz."""

from fastapi import APIRouter, Response

from loragate.gateway.auth.requirements import public
from loragate.gateway.http.envelope import json_response
from loragate.gateway.openapi.answers import answers
from loragate.gateway.openapi.shapes.health import Health, Readiness
from loragate.gateway.readiness import is_ready, readiness
from loragate.gateway.services import Use

router = APIRouter(tags=["health"], dependencies=[public])


@router.get("/healthz")
@answers(Health)
async def healthz() -> Response:
    """This process is alive."""
    return json_response({"status": "ok"})


@router.get("/readyz")
@answers(Readiness, also={503: Readiness})
async def readyz(use: Use) -> Response:
    """200 when requests can be served; else 503, naming what is not ready."""
    parts = await readiness(use)
    ready = is_ready(parts)
    body = {"status": "ready" if ready else "not ready", "parts": parts}
    return json_response(body, 200 if ready else 503)
