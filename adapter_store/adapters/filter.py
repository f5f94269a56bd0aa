"""Which adapters a list is to hold."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from loragate.adapter_store.adapters.adapter import AdapterStatus
from loragate.adapter_store.adapters.description import check_tag
from loragate.adapter_store.errors import Invalid

MAX_TAGS_ASKED = 8


@dataclass(frozen=True)
class AdapterFilter:
    """`search` is a part of the name, of a tag or of the description; all of `tags` are wanted. Without a `status`
    those that are there."""

    search: str = ""
    tags: tuple[str, ...] = ()
    status: AdapterStatus | None = None

    def __post_init__(self) -> None:
        if len(self.tags) > MAX_TAGS_ASKED:
            raise Invalid(f"`tag` may be given {MAX_TAGS_ASKED} times.", param="tag")
        for tag in self.tags:
            check_tag(tag, param="tag")


EVERY_ADAPTER = AdapterFilter()


def in_state(adapter: Any, status: AdapterStatus | None) -> tuple[ColumnElement[bool], ...]:
    """Of adapters' columns: those that were published."""
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
