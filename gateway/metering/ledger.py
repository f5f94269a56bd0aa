"""Who keeps the usage records."""

from typing import Protocol

from loragate.adapter_store.usage_record import UsageRecord


class Ledger(Protocol):
    """One per process."""

    def record(self, record: UsageRecord) -> None:
        """Take one ended request. Returns at once: whatever is slow happens later."""


class NoLedger:
    """Keeps nothing."""

    def record(self, record: UsageRecord) -> None:
        """Forget it."""
