"""One page of a cursor-paginated list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from loragate.adapter_store.errors import Invalid

DEFAULT_LIMIT = 20
MAX_LIMIT = 100

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Items, newest first; with `has_more`, an `after` with the last item's id returns the next page."""

    items: tuple[Item, ...]
    has_more: bool

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid(f"`limit` must be between 1 and {MAX_LIMIT}, not {limit}.", param="limit")
    return limit


def cut_page(fetched: Sequence[Item], limit: int) -> Page[Item]:
    """Return the page from up to `limit + 1` fetched items; the last one only shows that there are more."""
    return Page(tuple(fetched[:limit]), has_more=len(fetched) > limit)
