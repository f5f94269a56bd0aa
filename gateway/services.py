"""What the routes of one process share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import Request

from loragate.adapter_store.store import Store
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.calls.shedding import Shedding
from loragate.gateway.calls.turned_away import TurnedAway
from loragate.gateway.config import GatewayConfig
from loragate.gateway.engine_link import EngineLink
from loragate.gateway.generation.resolving import Resolver
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.metering.ledger import Ledger
from loragate.gateway.observability.engine_reading import EngineReading
from loragate.gateway.observability.http_metrics import HttpMetrics
from loragate.gateway.residency import Residency
from loragate.gateway.upload_slots import UploadSlots

if TYPE_CHECKING:
    from loragate.gateway.imports.runner import ImportRunner  # which publishes with these services


@dataclass(frozen=True, slots=True)
class Services:
    """Made when the application starts, closed when it stops."""

    config: GatewayConfig
    lifecycle: Lifecycle
    store: Store
    authenticator: Authenticator
    resolver: Resolver
    link: EngineLink
    generation: GenerationService
    shedding: Shedding
    turned_away: TurnedAway
    limiter: Limiter
    ledger: Ledger
    http_metrics: HttpMetrics
    engine_reading: EngineReading
    residency: Residency
    imports: "ImportRunner"
    uploads: UploadSlots
    started_at: int  # Unix time


def services_of(request: Request) -> Services:
    """The services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    return services_of(request)


Use = Annotated[Services, Depends(_services)]
