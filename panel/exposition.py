"""Prometheus' text format, as far as the panel reads it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Exposition:
    """What one scrape held."""

    samples: tuple[tuple[str, Labels, float], ...]

    def total(self, name: str, which: Callable[[Labels], bool] = lambda labels: True) -> float:
        """Of all the samples with this name."""
        return sum(value for found, labels, value in self.samples if found == name and which(labels))

    def buckets(self, name: str) -> dict[float, float]:
        """A histogram's, by upper bound."""
        found: dict[float, float] = {}
        for sample, labels, value in self.samples:
            if sample == f"{name}_bucket":
                bound = float(labels["le"])
                found[bound] = found.get(bound, 0.0) + value
        return found


def parse(text: str) -> Exposition:
    """Lines that are no samples are passed over."""
    samples = []
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is not None:
            labels = dict(_LABEL.findall(found[2] or ""))
            samples.append((found[1], labels, float(found[3])))
    return Exposition(tuple(samples))


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Of what a histogram took in between two scrapes, within the bucket that it is in; None for nothing."""
    grown = sorted((bound, count - before.get(bound, 0.0)) for bound, count in after.items())
    if not grown or grown[-1][1] <= 0:
        return None
    rank, lower, below = share * grown[-1][1], 0.0, 0.0
    for bound, count in grown:
        if count >= rank:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (rank - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower
