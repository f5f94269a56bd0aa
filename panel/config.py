"""What the panel is started with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PanelConfig:
    """`public_url` is what browsers reach the panel by, where that is not the address that it listens on.

    A session ends `idle_seconds` after its user's last act, and `session_seconds` after the sign-in in any case;
    whether its key is still good is asked every `recheck_seconds`.
    """

    gateway_url: str
    public_url: str | None = None
    idle_seconds: float = 3600.0
    session_seconds: float = 43_200.0
    recheck_seconds: float = 5.0
    most_sessions: int = 10_000

    def __post_init__(self) -> None:
        assert self.idle_seconds > 0
        assert self.session_seconds > 0
