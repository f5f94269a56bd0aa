"""GET /healthz and /readyz."""

from fastapi import APIRouter, Response

from loragate.gateway.dependencies.requirements import public
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.engines import Health, Readiness
from loragate.gateway.openapi.responses import describes
from loragate.gateway.readiness import is_ready, optional_parts, readiness

router = APIRouter(tags=["health"], dependencies=[public])


@router.get("/healthz")
@describes(Health)
async def healthz() -> Response:
    """Report that the process is alive."""
    return json_response({"status": "ok"})


@router.get("/readyz")
@describes(Readiness, also={503: Readiness})
async def readyz(use: Use) -> Response:
    """Return 200 if requests can be served, else 503 with the parts that are not ready. A `degraded` part affects only
    the requests that use it."""
    parts = await readiness(use)
    ready = is_ready(parts)
    others = optional_parts(use.config.data_dir)
    degraded = {name: trouble for name, trouble in others.items() if trouble is not None}
    parts |= {name: "degraded" if name in degraded else "ok" for name in others}
    body = {"status": "ready" if ready else "not ready", "parts": parts, "degraded": degraded}
    return json_response(body, 200 if ready else 503)
