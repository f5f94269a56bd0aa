"""What the scheduler remembers of adapters: what their tokens cost, and since when they are on the device."""

from dataclasses import dataclass, replace

from loragate.engine.sequence.sequence import AdapterKey

_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Residence:
    token_cost: float = 1.0
    since: int = 0  # the step


class Residences:
    """Bounded: of very many adapters, those heard of longest ago are taken for new."""

    def __init__(self) -> None:
        self._known: dict[AdapterKey, Residence] = {}

    def of(self, key: AdapterKey | None) -> Residence:
        return Residence() if key is None else self._known.get(key, Residence())

    def price(self, key: AdapterKey, token_cost: float) -> None:
        self._note(key, replace(self.of(key), token_cost=token_cost))

    def begin(self, key: AdapterKey, step: int) -> None:
        self._note(key, replace(self.of(key), since=step))

    def _note(self, key: AdapterKey, residence: Residence) -> None:
        self._known.pop(key, None)
        self._known[key] = residence
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
