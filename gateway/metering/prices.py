"""The cost of tokens."""

from collections.abc import Iterable

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.config.prices import _PRICE_DIGITS, Price


class Prices:
    """The most specific price applies: for the tenant's adapter, the tenant, the adapter's name, everything."""

    def __init__(self, prices: Iterable[Price] = ()) -> None:
        self._rates = {(price.tenant, price.adapter): _rates(price) for price in prices}

    def amount(self, record: UsageRecord) -> int | None:
        """Return the exact cost in 10⁻¹⁰ of the currency's unit; None without a price."""
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
