"""The probes: /healthz and /readyz, and /health, /ping and /version as vLLM has them."""

from importlib.metadata import version

from fastapi import APIRouter, Response

from loragate.gateway.dependencies.requirements import public
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import ShuttingDown
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.engines import Health, Readiness, Version
from loragate.gateway.openapi.responses import describes
from loragate.gateway.readiness import engine_troubles, is_ready, optional_parts, readiness
from loragate.gateway.services import Services

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
    others = optional_parts(use.config.data_dir) | engine_troubles(use)
    degraded = {name: trouble for name, trouble in others.items() if trouble is not None}
    parts |= {name: "degraded" if name in degraded else "ok" for name in others}
    body = {"status": "ready" if ready else "not ready", "parts": parts, "degraded": degraded}
    return json_response(body, 200 if ready else 503)


@router.get("/health")
@describes(Health, errors=(503,))
async def health(use: Use) -> Response:
    """Return 200 if the engine responds, else 503; vLLM's route for probes."""
    return _engine_health(use)


@router.get("/ping")
@describes(Health, errors=(503,))
async def ping(use: Use) -> Response:
    """Return 200 if the engine responds, else 503; SageMaker's route for probes."""
    return _engine_health(use)


@router.post("/ping")
@describes(Health, errors=(503,))
async def post_ping(use: Use) -> Response:
    """Return the same as `GET /ping`."""
    return _engine_health(use)


@router.get("/version")
@describes(Version)
async def get_version_of_server() -> Response:
    """Return the version of loragate."""
    return json_response({"version": version("loragate")})


def _engine_health(use: Services) -> Response:
    if use.lifecycle.draining:
        raise ShuttingDown
    use.link.require_ready()
    return json_response({"status": "ok"})
