"""The panel's configuration."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PanelConfig:
    """`public_url` is the address that browsers use, if it differs from the one that the panel listens on.

    A session ends `idle_seconds` after its user's last action, and at the latest `session_seconds` after the sign-in.
    Its key is checked every `recheck_seconds`.
    """

    gateway_url: str
    gateway_cert: Path | None = None  # the only certificate that the gateway may show; None: any valid one for its name
    public_url: str | None = None
    hosts: tuple[str, ...] = ()  # further names under which browsers reach the panel
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded headers are believed
    tls_cert: Path | None = None
    tls_key: Path | None = None
    idle_seconds: float = 3600.0
    session_seconds: float = 43_200.0
    recheck_seconds: float = 5.0
    max_sessions: int = 10_000
    max_connections: int = 1000
    stall_seconds: float = 15.0  # for a request's head and its body, and for reading a response

    def __post_init__(self) -> None:
        assert self.idle_seconds > 0
        assert self.session_seconds > 0
        assert self.stall_seconds > 0
        assert self.max_connections > 0
