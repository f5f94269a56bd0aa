"""What tokens cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from loragate.adapter_store.usage.record import AMOUNT_DIGITS, UsageRecord

_MILLION_DIGITS = 6
_PRICE_DIGITS = AMOUNT_DIGITS - _MILLION_DIGITS  # behind the point, so that amounts are whole numbers
_MOST = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens, in the installation's currency. `cached` is of prompt tokens that needed no computing.

    It holds for the tenant and the adapter that it names, by id and by name; None stands for all, the base model among
    them.
    """

    prompt: Decimal = Decimal(0)
    completion: Decimal = Decimal(0)
    cached: Decimal | None = None  # None: as `prompt`
    tenant: str | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            value = getattr(self, name)
            if value is not None and not _is_price(value):
                raise ValueError(f"prices.{name} must be 0 to {_MOST} with at most {_PRICE_DIGITS} decimals")


class Prices:
    """The most specific one counts: for the tenant's adapter, the tenant, the adapter's name, all."""

    def __init__(self, prices: Iterable[Price] = ()) -> None:
        self._rates = {(price.tenant, price.adapter): _rates(price) for price in prices}

    def amount(self, record: UsageRecord) -> int | None:
        """In 10⁻¹⁰ of the currency's unit, exactly; None without a price."""
        for tenant in (record.tenant_id, None):
            for adapter in (record.adapter, None):
                rates = self._rates.get((tenant, adapter))
                if rates is not None:
                    prompt, cached, completion = rates
                    computed = record.prompt_tokens - record.cached_tokens
                    return computed * prompt + record.cached_tokens * cached + record.completion_tokens * completion
        return None


def _rates(price: Price) -> tuple[int, int, int]:
    cached = price.prompt if price.cached is None else price.cached
    prompt, cached_, completion = (int(each.scaleb(_PRICE_DIGITS)) for each in (price.prompt, cached, price.completion))
    return prompt, cached_, completion


def _is_price(value: Decimal) -> bool:
    return value.is_finite() and 0 <= value <= _MOST and value.scaleb(_PRICE_DIGITS) % 1 == 0
