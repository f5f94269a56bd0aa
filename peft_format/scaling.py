"""Each module's rank and scaling: of PEFT's `rank_pattern` and `alpha_pattern` the first match wins."""

from collections.abc import Collection, Iterable, Iterator
from math import sqrt
from typing import Generic, TypeVar

from loragate.peft_format.automaton import Budget
from loragate.peft_format.config import LoraConfig
from loragate.peft_format.errors import quoted
from loragate.peft_format.pattern import SuffixPattern

Value = TypeVar("Value", int, float)


class Overrides(Generic[Value]):
    """One pattern table. Remembers which of its patterns have been of use."""

    def __init__(self, pairs: Iterable[tuple[str, Value]], field: str, budget: Budget) -> None:
        self._field = field
        self._table: list[tuple[SuffixPattern, str, Value]] = [
            (SuffixPattern(key, field, budget), key, value) for key, value in pairs
        ]
        self._used: set[str] = set()

    def of(self, name: str, default: Value) -> Value:
        for pattern, key, value in self._table:
            if pattern.matches(name):
                self._used.add(key)
                return value
        return default

    def warnings(self, names: Collection[str]) -> Iterator[str]:
        """A sentence for each key that matches none of the targeted modules."""
        for pattern, key, _ in self._table:
            if key not in self._used and not any(map(pattern.matches, names)):
                yield f"{self._field}: {quoted(key)} matches no targeted module and changes nothing."


def scaling(config: LoraConfig, rank: int, alpha: float) -> float:
    """What B·A is multiplied by. Rank-stabilised LoRA (arXiv:2312.03732) divides by √rank."""
    return alpha / sqrt(rank) if config.use_rslora else alpha / rank
