"""The checkpoints in a run's folder, for code that does not import torch."""

from pathlib import Path

_PREFIX = "checkpoint-"


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a folder that `checkpoints_in` found."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first. Of those before the last, the best may only have its adapter."""
    found = [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=checkpoint_step)


def last_checkpoint_step(folder: Path) -> int:
    """Return the step from which the run would resume, 0 without a checkpoint."""
    return max(map(checkpoint_step, checkpoints_in(folder)), default=0)
