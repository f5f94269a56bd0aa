"""Where clients on this machine reach a running server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Addresses:
    """Known before anything runs: the supervisor holds the ports."""

    base_url: str
    grpc_target: str
    panel_url: str | None = None
