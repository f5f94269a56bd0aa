"""Filters of lists of adapters."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from loragate.adapter_store.adapters.adapter import AdapterStatus
from loragate.adapter_store.adapters.description import check_tag
from loragate.adapter_store.errors import Invalid

MAX_FILTER_TAGS = 8


@dataclass(frozen=True)
class AdapterFilter:
    """Adapters with `search` in the name, a tag or the description, with all of `tags`, in state `status`; without a
    `status`, all that are not deleted."""

    search: str = ""
    tags: tuple[str, ...] = ()
    status: AdapterStatus | None = None

    def __post_init__(self) -> None:
        if len(self.tags) > MAX_FILTER_TAGS:
            raise Invalid(f"`tag` may be given at most {MAX_FILTER_TAGS} times.", param="tag")
        for tag in self.tags:
            check_tag(tag, param="tag")


EVERY_ADAPTER = AdapterFilter()


def in_state(adapter: Any, status: AdapterStatus | None) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for published adapters in this state."""
    published = adapter.published_at.is_not(None)
    match status:
        case None:
            return (published, adapter.deleted_at.is_(None))
        case AdapterStatus.DELETED:
            return (published, adapter.deleted_at.is_not(None))
        case AdapterStatus.DISABLED:
            return (published, adapter.deleted_at.is_(None), adapter.disabled_at.is_not(None))
        case AdapterStatus.READY:
            return (published, adapter.deleted_at.is_(None), adapter.disabled_at.is_(None))
