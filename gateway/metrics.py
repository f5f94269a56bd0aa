"""All metrics that a gateway process counts itself, in one registry."""

from prometheus_client import Counter

from loragate.gateway.auth.failures import FailureMetrics
from loragate.gateway.background.response_metrics import ResponseMetrics
from loragate.gateway.calls.shedding import SheddingMetrics
from loragate.gateway.http.metrics import HttpMetrics
from loragate.gateway.imports.metrics import ImportMetrics
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.metering.metrics import UsageMetrics


class GatewayMetrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self.http = HttpMetrics()
        self.usage = UsageMetrics(self.http.registry)
        self.limits = LimitMetrics(self.http.registry)
        self.shedding = SheddingMetrics(self.http.registry)
        self.imports = ImportMetrics(self.http.registry)
        self.responses = ResponseMetrics(self.http.registry)
        self.authentication = FailureMetrics(self.http.registry)
        self.quarantines = Counter(
            "loragate_gateway_quarantines",
            "Adapters quarantined because their bytes are corrupt.",
            registry=self.http.registry,
        )
