"""Whether responses are stored, and for how long."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ResponsesConfig:
    """With `store`, tenants may have responses and conversations stored. A response expires `retention_days` after it
    was created, a conversation so long after its last use; 0: never. A process runs `max_background` responses in the
    background at a time; 0: it runs none."""

    store: bool = False
    retention_days: float = 30
    max_background: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.retention_days <= 36_500:
            raise ValueError(f"responses.retention_days must be 0 to 36500, got {self.retention_days}")
        if self.max_background < 0:
            raise ValueError(f"responses.max_background must not be negative, got {self.max_background}")

    @property
    def lifetime(self) -> timedelta | None:
        """How long a response is kept; None: until it is deleted."""
        return timedelta(days=self.retention_days) if self.retention_days else None
