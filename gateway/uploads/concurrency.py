"""How many uploads of one tenant may come at once, so that slow ones hold neither everybody's connections nor the disk.

Each may be as slow as the pace allows; together they are bounded here.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from loragate.gateway.errors import TooManyRequests

MOST_UPLOADS = 32  # of one tenant in one process


class UploadSlots:
    """One per process."""

    def __init__(self, most: int = MOST_UPLOADS) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, tenant_id: str) -> Iterator[None]:
        """One, for as long as the block lasts. Raises TooManyRequests."""
        if self._taken[tenant_id] >= self._most:
            raise TooManyRequests(
                f"{self._most} uploads of this tenant run already; wait for one of them.", code="too_many_uploads"
            )
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]
