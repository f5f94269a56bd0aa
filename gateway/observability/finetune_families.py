"""The metrics of the fine-tune worker on this machine, which prometheus_client stores in files that outlive it."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "finetune-metrics"


def finetune_families(data_dir: Path) -> Iterable[Metric]:
    """Return the worker's metrics; none if no worker runs on this machine."""
    folder = data_dir / FOLDER
    if not folder.is_dir():
        return []
    return MultiProcessCollector(CollectorRegistry(), str(folder)).collect()  # type: ignore[no-untyped-call,no-any-return]
