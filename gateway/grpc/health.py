"""grpc.health.v1.Health, by the same readiness as /readyz."""

import asyncio
from collections.abc import AsyncGenerator

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from loragate.gateway.errors import NotFound
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import parsed
from loragate.gateway.readiness import is_ready, readiness

_WATCH_SECONDS = 1.0

# What each service cannot do without: adapters are taken in while the engine is down.
_NEEDS = {
    "": ("gateway", "database", "engine"),
    "loragate.v1.InferenceService": ("gateway", "database", "engine"),
    "loragate.v1.AdapterService": ("gateway", "database"),
    "loragate.v1.FineTuningService": ("gateway", "database"),
}


async def check(call: Call) -> AsyncGenerator[HealthCheckResponse, None]:
    """The state of a service now; without a name, of the whole server."""
    service = await _service(call)
    if service not in _NEEDS:
        raise NotFound("There is no such service here.", param="service", code="unknown_service")
    yield HealthCheckResponse(status=await _status(call, service))


async def watch(call: Call) -> AsyncGenerator[HealthCheckResponse, None]:
    """Its state now and whenever it has changed."""
    service = await _service(call)
    last = None
    while True:
        status = await _status(call, service)
        if status != last:
            yield HealthCheckResponse(status=status)
        last = status
        await asyncio.sleep(_WATCH_SECONDS)


async def _service(call: Call) -> str:
    return str((await call.request(lambda raw: parsed(HealthCheckRequest, raw))).service)


async def _status(call: Call, service: str) -> HealthCheckResponse.ServingStatus:
    if service not in _NEEDS:
        return HealthCheckResponse.SERVICE_UNKNOWN
    parts = await readiness(call.services)
    ready = is_ready({part: state for part, state in parts.items() if part in _NEEDS[service]})
    return HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
