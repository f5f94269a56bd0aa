from decimal import Decimal

import pytest

from loragate.adapter_store.usage.record import amount_text
from loragate.gateway.config.prices import Price
from loragate.gateway.metering.ledger import Prices
from tests.gateway.usage_records import opened

RECORD = opened(prompt_tokens=10, cached_tokens=4, completion_tokens=3)  # tenant tn_1, adapter support


def amount(*prices: Price, **fields: object) -> int | None:
    return Prices(prices).amount(opened(prompt_tokens=10, cached_tokens=4, completion_tokens=3, **fields))


def flat(price: str, **names: str) -> Price:
    return Price(Decimal(price), Decimal(price), **names)


def test_without_a_price_there_is_no_amount() -> None:
    assert amount() is None
    assert amount(flat("1", tenant="tn_2")) is None


def test_each_kind_of_token_has_its_price() -> None:
    priced = amount(Price(prompt=Decimal("0.15"), completion=Decimal("0.6"), cached=Decimal("0.0750")))
    assert priced is not None
    assert Decimal(amount_text(priced)) == (6 * Decimal("0.15") + 4 * Decimal("0.075") + 3 * Decimal("0.6")) / 10**6


def test_cached_tokens_cost_as_others_by_default() -> None:
    assert amount(Price(prompt=Decimal(1))) == 10 * 10**4


def test_the_most_specific_price_is_used() -> None:
    prices = [
        flat("1"),
        flat("2", adapter="support"),
        flat("3", tenant="tn_1"),
        flat("4", tenant="tn_1", adapter="support"),
    ]
    for count, expected in ((4, 4), (3, 3), (2, 2), (1, 1)):
        assert amount(*prices[:count]) == 13 * expected * 10**4
    assert amount(*prices, adapter="other") == 13 * 3 * 10**4
    assert amount(*prices, tenant_id="tn_2", adapter=None) == 13 * 10**4


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "0.00001", "1000001"])
def test_invalid_prices_are_rejected(price: str) -> None:
    with pytest.raises(ValueError, match=r"prices\.completion"):
        Price(completion=Decimal(price))
