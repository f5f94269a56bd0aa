"""The panel's configuration."""

from dataclasses import dataclass

from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections.tls import ANY_VALID, ClientTls


@dataclass(frozen=True)
class PanelConfig:
    """`public_url` is the address that browsers use, if it differs from the one that the panel listens on.

    A session ends `idle_seconds` after its user's last action, and at the latest `session_seconds` after the sign-in.
    Its key is checked every `recheck_seconds`.
    """

    gateway_url: str
    gateway_tls: ClientTls = ANY_VALID  # the certificate that the gateway may show, and the panel's own
    public_url: str | None = None
    hosts: tuple[str, ...] = ()  # further names under which browsers reach the panel
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded headers are believed
    tls: TlsFiles | None = None
    hsts_seconds: int = 31_536_000  # how long browsers remember to use TLS only; 0: they need not
    idle_seconds: float = 3600.0
    session_seconds: float = 43_200.0
    recheck_seconds: float = 5.0
    max_sessions: int = 10_000
    max_connections: int = 1000
    stall_seconds: float = 15.0  # for a request's head and its body, and for reading a response

    def __post_init__(self) -> None:
        assert self.hsts_seconds >= 0
        assert self.idle_seconds > 0
        assert self.session_seconds > 0
        assert self.stall_seconds > 0
        assert self.max_connections > 0
