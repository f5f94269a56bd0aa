"""Answers about usage."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.adapters import FirstTokenMs
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


class TurnedAway(TypedDict):
    """Requests that nothing was done for: over a limit of the tenant's, or when the engine had too much to do."""

    over_limit: Count
    overloaded: Count


class Service(TypedDict):
    """How requests between `start` and `end` were served: of the latest 10,000 that were let in, `requests`, how many
    failed for a reason of the server's and when their first tokens came; and how many others were turned away."""

    object: Literal["usage.service"]
    start: Moment
    end: Moment
    requests: Count
    errors: Count
    first_token_ms: FirstTokenMs | None
    turned_away: TurnedAway


class UsageList(Page):
    """The latest first. `totals` are those of all pages."""

    data: list[UsageRow]
    start: Moment
    end: Moment
    totals: UsageSums
