"""GET /healthz, /readyz and /openapi.json."""

from fastapi import APIRouter, Request, Response

from loragate.gateway.auth.requirements import public
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.openapi import openapi_document
from loragate.gateway.readiness import is_ready, readiness
from loragate.gateway.services import Use

router = APIRouter(tags=["health"], dependencies=[public])


@router.get("/healthz")
async def healthz() -> Response:
    """This process is alive."""
    return json_response({"status": "ok"})


@router.get("/readyz")
async def readyz(use: Use) -> Response:
    """200 when requests can be served; else 503, naming what is not ready."""
    parts = await readiness(use)
    ready = is_ready(parts)
    body = {"status": "ready" if ready else "not ready", "parts": parts}
    return json_response(body, 200 if ready else 503)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """This API, described for programs."""
    return json_response(openapi_document(request.app))
