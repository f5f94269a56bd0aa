"""The checkpoints in a run's folder, for whoever does not train."""

from pathlib import Path

_PREFIX = "checkpoint-"


def checkpoint_step(checkpoint: Path) -> int:
    """Of a folder that `checkpoints_in` found."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def checkpoints_in(folder: Path) -> list[Path]:
    """The complete ones, oldest first; of those before the last, the best may have its adapter alone."""
    found = [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=checkpoint_step)


def last_checkpoint_step(folder: Path) -> int:
    """The step that the run goes on from, 0 from its beginning."""
    return max(map(checkpoint_step, checkpoints_in(folder)), default=0)
