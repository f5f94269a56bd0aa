"""Progress bars on stderr, so that stdout contains only results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


def transfer_progress() -> Progress:
    """Return a progress display with bytes, speed and the remaining time."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def byte_progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of one task; yield a function that takes the bytes that are done, and those in all."""
    with transfer_progress() as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
