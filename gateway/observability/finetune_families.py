"""What the fine-tune worker on this machine counts: prometheus_client keeps it in files, which outlive the worker."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "finetune-metrics"


def finetune_families(data_dir: Path) -> Iterable[Metric]:
    """None where no worker runs on this machine."""
    folder = data_dir / FOLDER
    if not folder.is_dir():
        return []
    return MultiProcessCollector(CollectorRegistry(), str(folder)).collect()  # type: ignore[no-untyped-call,no-any-return]
