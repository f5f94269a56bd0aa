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
        flat("3", tenant="tn_1"),
        flat("4", tenant="tn_1", adapter="support"),
    ]
    for count, expected in ((3, 4), (2, 3), (1, 1)):
        assert amount(*prices[:count]) == 13 * expected * 10**4
    assert amount(*prices, adapter="other") == 13 * 3 * 10**4
    assert amount(*prices, tenant_id="tn_2", adapter=None) == 13 * 10**4


def test_what_was_computed_has_a_price_where_the_operator_wants_it() -> None:
    counts = {"computed_prompt_tokens": 8, "generated_tokens": 50}
    rates = {"prompt": Decimal(1), "completion": Decimal(10), "cached": Decimal("0.5")}
    assert amount(Price(**rates), **counts) == (6 * 1 + 3 * 10) * 10**4 + 4 * 5 * 10**3
    assert amount(Price(**rates, basis="computed"), **counts) == (8 * 1 + 50 * 10) * 10**4 + 4 * 5 * 10**3
    assert amount(Price(**rates, basis="computed")) == amount(Price(**rates)), "of records of an earlier version"
    with pytest.raises(ValueError, match=r"prices\.basis"):
        Price(basis="reported")  # type: ignore[arg-type]


def test_an_adapter_named_like_a_cheap_one_is_not_cheap() -> None:
    """Its tenant chose the name. A price by name alone, which would hold for every tenant, is rejected."""
    prices = [flat("1"), flat("0.1", tenant="tn_1", adapter="support")]
    assert amount(*prices, tenant_id="tn_2") == 13 * 10**4
    with pytest.raises(ValueError, match=r"prices\.adapter 'support' needs prices\.tenant"):
        flat("0.1", adapter="support")


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "0.00001", "1000001"])
def test_invalid_prices_are_rejected(price: str) -> None:
    with pytest.raises(ValueError, match=r"prices\.completion"):
        Price(completion=Decimal(price))
