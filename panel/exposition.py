"""What the gateway counts, read from Prometheus' text format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from loragate.panel.failure import Failure

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Exposition:
    """What one scrape held."""

    samples: tuple[tuple[str, Labels, float], ...]

    def total(self, name: str, which: Callable[[Labels], bool] = lambda labels: True) -> float:
        """Of all the samples with this name."""
        return sum(value for found, labels, value in self.samples if found == name and which(labels))

    def by(self, label: str, name: str) -> dict[str, float]:
        """The same for each of the label's values."""
        sums: dict[str, float] = {}
        for found, labels, value in self.samples:
            if found == name:
                sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def buckets(self, name: str) -> dict[float, float]:
        """A histogram's, by upper bound."""
        found: dict[float, float] = {}
        for sample, labels, value in self.samples:
            if sample == f"{name}_bucket":
                bound = float(labels["le"])
                found[bound] = found.get(bound, 0.0) + value
        return found


def parse(text: str) -> Exposition:
    """Raises Failure for what is no such format."""
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise Failure("The gateway's metrics cannot be read.") from error
    return Exposition(tuple((each.name, each.labels, each.value) for family in families for each in family.samples))


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
