"""Each module's rank and scaling; in PEFT's `rank_pattern` and `alpha_pattern` the first match wins."""

from collections.abc import Collection, Iterable, Iterator
from math import sqrt
from typing import Generic, TypeVar

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config, quoted
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.patterns.pattern import SuffixPattern

Value = TypeVar("Value", int, float)


class Overrides(Generic[Value]):
    """One pattern table, which records the patterns that have matched."""

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
        """Yield a sentence for each key that matches none of the targeted modules."""
        for pattern, key, _ in self._table:
            if key not in self._used and not any(map(pattern.matches, names)):
                yield f"{self._field}: {quoted(key)} matches no targeted module and changes nothing."


class Sizes:
    """Rank and scaling of everything that has LoRA, by dotted path."""

    def __init__(self, config: LoraConfig, max_rank: int, budget: Budget) -> None:
        self._config = config
        self._max_rank = max_rank
        self._ranks = Overrides(config.rank_pattern, "rank_pattern", budget)
        self._alphas = Overrides(config.alpha_pattern, "alpha_pattern", budget)
        self._paths: list[str] = []

    def of(self, path: str) -> tuple[int, float]:
        """Return rank and scaling; raises AdapterRejected for a rank above the engine's maximum."""
        self._paths.append(path)
        rank = self._ranks.of(path, self._config.r)
        if rank > self._max_rank:
            raise in_config("r", f"The rank on {path} is {rank}; at most {self._max_rank} is served here.")
        return rank, scaling(self._config, rank, self._alphas.of(path, self._config.lora_alpha))

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each pattern that matched none of the paths looked up."""
        yield from self._ranks.warnings(self._paths)
        yield from self._alphas.warnings(self._paths)


def scaling(config: LoraConfig, rank: int, alpha: float) -> float:
    """Return the factor of B·A. Rank-stabilized LoRA (arXiv:2312.03732) divides by √rank."""
    return alpha / sqrt(rank) if config.use_rslora else alpha / rank
