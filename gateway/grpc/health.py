"""grpc.health.v1.Health, with the same readiness as /readyz."""

import asyncio
from collections.abc import AsyncGenerator

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from loragate.gateway.errors import NotFound
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import parse_message
from loragate.gateway.http.bodies import Pace
from loragate.gateway.readiness import is_ready, readiness

_WATCH_SECONDS = 1.0
_MAX_BYTES = 4096
_PACE = Pace(5.0)  # probes send their request at once; one that does not would hold a place of theirs

# What each service requires: adapters can be uploaded while the engine is down.
_NEEDS = {
    "": ("gateway", "database", "engine"),
    "loragate.v1.InferenceService": ("gateway", "database", "engine"),
    "loragate.v1.AdapterService": ("gateway", "database"),
    "loragate.v1.FineTuningService": ("gateway", "database"),
    "loragate.v1.BatchService": ("gateway", "database"),
}


async def check(call: Call) -> AsyncGenerator[HealthCheckResponse, None]:
    """Return the current state of a service, or of the whole server if no name is given."""
    service = await _service(call)
    if service not in _NEEDS:
        raise NotFound("This server has no such service.", param="service", code="unknown_service")
    yield HealthCheckResponse(status=await _status(call, service))


async def watch(call: Call) -> AsyncGenerator[HealthCheckResponse, None]:
    """Yield the current state, and every change of it."""
    service = await _service(call)
    last = None
    while True:
        status = await _status(call, service)
        if status != last:
            yield HealthCheckResponse(status=status)
        last = status
        await asyncio.sleep(_WATCH_SECONDS)


async def _service(call: Call) -> str:
    raw = await call.stream.message(call.reserved, _MAX_BYTES, _PACE)
    return str(parse_message(HealthCheckRequest, raw).service)


async def _status(call: Call, service: str) -> HealthCheckResponse.ServingStatus:
    if service not in _NEEDS:
        return HealthCheckResponse.SERVICE_UNKNOWN
    parts = await readiness(call.services)
    ready = is_ready({part: state for part, state in parts.items() if part in _NEEDS[service]})
    return HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
