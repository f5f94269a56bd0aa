"""The destination of traces."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from urllib.parse import urlsplit

_EXPORTER = "opentelemetry.exporter.otlp.proto.http"


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """An OTLP collector's HTTP address, without `/v1/traces`. Without one, tracing is off.

    `sample_ratio` is the share of requests that is traced. With `trust_traceparent`, a caller's `traceparent` decides
    instead, and its span becomes the parent: set it if only your own services or proxy can reach the gateway.
    """

    endpoint: str = field(default="", repr=False)  # it may hold a password
    sample_ratio: float = 1.0
    trust_traceparent: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.sample_ratio <= 1:
            raise ValueError(f"tracing.sample_ratio must be 0 to 1, got {self.sample_ratio}")
        if not self.endpoint:
            return
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("tracing.endpoint must be of the form http://host:port")
        if not _installed():
            raise ValueError("tracing.endpoint needs OpenTelemetry's SDK: pip install 'loragate[tracing]'")

    @property
    def traces_url(self) -> str:
        """The URL of OTLP over HTTP."""
        return self.endpoint.rstrip("/") + "/v1/traces"


def _installed() -> bool:
    try:
        return find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:
        return False
