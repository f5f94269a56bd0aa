"""Which adapters a list is to hold."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.adapter import AdapterStatus
from loragate.adapter_store.cursor import Order
from loragate.adapter_store.description import check_tag
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.search_text import has_trigrams, sought
from loragate.adapter_store.tables import AdapterRow, AdapterTagRow
from loragate.adapter_store.tenancy import tenant_of

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

    @property
    def order(self) -> Order:
        """What lists go by. An index has one tag's adapters in this order."""
        if self.tags:
            return AdapterTagRow.created_at, AdapterTagRow.adapter_id
        return AdapterRow.created_at, AdapterRow.id

    async def prepare(self, session: AsyncSession) -> None:
        """Which index serves a search depends on what is sought. Postgres would otherwise plan some searches and then
        use one plan for all."""
        if sought(self.search) is not None and session.get_bind().dialect.name == "postgresql":
            await session.execute(select(func.set_config("plan_cache_mode", "force_custom_plan", True)))

    def widely_sought(self, session: AsyncSession) -> str | None:
        """What all tenants' texts are searched for, where an index of trigrams knows it."""
        text = sought(self.search)
        return text if tenant_of(session) is None and text is not None and has_trigrams(text) else None

    def applied(self, query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
        """To a query of AdapterRow. Raises Invalid."""
        query = query.where(*in_state(self.status))
        text = sought(self.search)
        if text is not None:
            query = query.where(AdapterRow.search_text.contains(text, autoescape=True))
        for number, tag in enumerate(self.tags):
            row = aliased(AdapterTagRow) if number else AdapterTagRow  # the first has the order
            query = query.join(row, tagged(AdapterRow, row, tag))
        return query


EVERY_ADAPTER = AdapterFilter()


def in_state(status: AdapterStatus | None) -> tuple[ColumnElement[bool], ...]:
    """Of adapters that were published."""
    row = AdapterRow
    published = row.published_at.is_not(None)
    match status:
        case None:
            return (published, row.deleted_at.is_(None))
        case AdapterStatus.DELETED:
            return (published, row.deleted_at.is_not(None))
        case AdapterStatus.DISABLED:
            return (published, row.deleted_at.is_(None), row.disabled_at.is_not(None))
        case AdapterStatus.READY:
            return (published, row.deleted_at.is_(None), row.disabled_at.is_(None))


def tagged(adapter: Any, row: type[AdapterTagRow], tag: str | ColumnElement[str]) -> ColumnElement[bool]:
    """The tag's row is this adapter's, whose columns may be a subquery's."""
    return and_(row.tenant_id == adapter.tenant_id, row.adapter_id == adapter.id, row.tag == tag)
