"""What the routes of one process share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loragate.adapter_store.store import Store
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.calls.rejections import TurnedAway
from loragate.gateway.calls.shedding import Shedding
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.engine.residency import Residency
from loragate.gateway.engine.stats_reader import EngineReading
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.metrics import HttpMetrics
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.metering.ledger import Ledger
from loragate.gateway.uploads.concurrency import UploadSlots

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
