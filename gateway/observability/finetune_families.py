"""The metrics of the fine-tune worker on this machine, which prometheus_client stores in files that outlive it."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "finetune-metrics"

# Of the job in training, and so of a single tenant.
_OF_A_JOB = frozenset(
    f"loragate_finetune_{name}"
    for name in ("step", "total_steps", "train_loss", "valid_loss", "learning_rate", "gradient_norm")
)


def finetune_families(data_dir: Path, *, all_of_them: bool) -> Iterator[Metric]:
    """Yield the worker's metrics; none if no worker runs on this machine. Those of the job in training are for the
    operator only."""
    folder = data_dir / FOLDER
    if folder.is_dir():
        for family in MultiProcessCollector(CollectorRegistry(), str(folder)).collect():  # type: ignore[no-untyped-call]
            if all_of_them or family.name not in _OF_A_JOB:
                yield family
