"""The panel's configuration."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PanelConfig:
    """`public_url` is the address that browsers use, if it differs from the one that the panel listens on.

    A session ends `idle_seconds` after its user's last action, and at the latest `session_seconds` after the sign-in.
    Its key is checked every `recheck_seconds`.
    """

    gateway_url: str
    public_url: str | None = None
    idle_seconds: float = 3600.0
    session_seconds: float = 43_200.0
    recheck_seconds: float = 5.0
    max_sessions: int = 10_000

    def __post_init__(self) -> None:
        assert self.idle_seconds > 0
        assert self.session_seconds > 0
