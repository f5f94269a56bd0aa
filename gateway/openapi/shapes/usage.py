"""Answers about usage."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Moment, Page

Amount = Annotated[str | None, Field(description="A decimal number, in the currency; null where nothing has a price.")]


class UsageSums(TypedDict):
    """`cached_tokens` are among the prompts'."""

    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cached_tokens: Count
    amount: Amount
    currency: str | None


class UsageRow(UsageSums):
    """The sums of one group, and what it was grouped by."""

    object: Literal["usage"]
    id: str
    start: NotRequired[Moment]
    end: NotRequired[Moment]
    tenant_id: NotRequired[str]
    key_id: NotRequired[str]
    endpoint: NotRequired[str]
    adapter: NotRequired[str | None]
    model: NotRequired[str]


class UsageList(Page):
    """The latest first. `totals` are those of all pages."""

    data: list[UsageRow]
    start: Moment
    end: Moment
    totals: UsageSums
