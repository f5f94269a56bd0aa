"""The gateway's metrics, parsed from Prometheus' text format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from loragate.panel.api import ApiError

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Exposition:
    """The samples of one scrape."""

    samples: tuple[tuple[str, Labels, float], ...]

    def total(self, name: str, which: Callable[[Labels], bool] = lambda labels: True) -> float:
        """Return the sum of the samples with this name whose labels match."""
        return sum(value for found, labels, value in self.samples if found == name and which(labels))

    def by(self, label: str, name: str) -> dict[str, float]:
        """Return the sums for each value of the label."""
        sums: dict[str, float] = {}
        for found, labels, value in self.samples:
            if found == name:
                sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's buckets by upper bound."""
        found: dict[float, float] = {}
        for sample, labels, value in self.samples:
            if sample == f"{name}_bucket":
                bound = float(labels["le"])
                found[bound] = found.get(bound, 0.0) + value
        return found


def parse(text: str) -> Exposition:
    """Parse the text format. Raise ApiError for anything else."""
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise ApiError("The gateway's metrics cannot be read.") from error
    return Exposition(tuple((each.name, each.labels, each.value) for family in families for each in family.samples))


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Return a quantile of the observations between two scrapes, interpolated within its bucket; None without any."""
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
