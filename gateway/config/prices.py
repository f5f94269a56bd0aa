"""Prices of tokens."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from loragate.adapter_store.usage.record import AMOUNT_DIGITS

_MILLION_DIGITS = 6

_PRICE_DIGITS = AMOUNT_DIGITS - _MILLION_DIGITS  # behind the point, so that amounts are whole numbers

_MOST = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in the installation's currency. `cached` is the price of prompt tokens from the
    prefix cache, `training` that of tokens in training, which is no adapter's. `basis` says
    whether the tokens that were delivered to clients are priced, or all that were computed.

    It applies to the tenant and the adapter that it names, by id and by name; None stands for all, including the base
    model. Tenants choose their adapters' names, so an adapter has a price only together with its tenant.
    """

    prompt: Decimal = Decimal(0)
    completion: Decimal = Decimal(0)
    cached: Decimal | None = None  # None: as `prompt`
    training: Decimal = Decimal(0)
    tenant: str | None = None
    adapter: str | None = None
    basis: Literal["delivered", "computed"] = "delivered"

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached", "training"):
            value = getattr(self, name)
            if value is not None and not _is_price(value):
                raise ValueError(f"prices.{name} must be 0 to {_MOST} with at most {_PRICE_DIGITS} decimals")
        if self.basis not in ("delivered", "computed"):
            raise ValueError(f"prices.basis must be delivered or computed, got {self.basis!r}")
        if self.adapter is not None and self.tenant is None:
            raise ValueError(
                f"prices.adapter '{self.adapter}' needs prices.tenant: any tenant can give an adapter that name"
            )

    @property
    def training_rate(self) -> int:
        """The price of one token in training, in 10⁻¹⁰ of the currency's unit."""
        return int(self.training.scaleb(_PRICE_DIGITS))


def _is_price(value: Decimal) -> bool:
    return value.is_finite() and 0 <= value <= _MOST and value.scaleb(_PRICE_DIGITS) % 1 == 0
