"""The configuration of `loragate panel`, from the settings."""

from typing import TYPE_CHECKING

from loragate.cli.settings.model import Settings
from loragate.gateway.connections.tls import ClientTls

if TYPE_CHECKING:
    from loragate.panel.config import PanelConfig


def panel_config(settings: Settings) -> "PanelConfig":
    """Return the panel's configuration. By default the API is on this machine."""
    from loragate.panel.config import PanelConfig

    panel = settings.panel
    return PanelConfig(
        gateway_url=panel.gateway_url or f"http://127.0.0.1:{settings.port}",
        gateway_tls=ClientTls(panel.gateway_cert, settings.client_cert),
        public_url=panel.public_url,
        hosts=panel.hosts,
        trusted_proxies=settings.forwarded_allow_ips,
        tls=settings.tls,
        hsts_seconds=panel.hsts_seconds,
        idle_seconds=panel.idle_seconds,
        session_seconds=panel.session_seconds,
        max_connections=panel.max_connections,
        stall_seconds=panel.stall_seconds,
    )
