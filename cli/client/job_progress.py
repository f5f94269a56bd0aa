"""Following a job to its end: its events and, on a terminal, a progress bar and the loss curve."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loragate.cli.client.http.api import Api, ConnectionFailed
from loragate.cli.client.job import WAITING, Document, job_path, new_events
from loragate.cli.client.terminal.sparkline import sparkline

_POLL_SECONDS = 1.0
_MAX_FAILED_POLLS = 60  # in a row, while the server does not respond
_CURVE_WIDTH = 32  # characters


class ProgressDisplay(Protocol):
    """Displays a job's progress."""

    def show(self, job: Document, events: list[Document]) -> None:
        """Show the job's state and the events since the last call, oldest first."""
        ...


def follow_job(
    api: Api, job_id: str, display: ProgressDisplay, sleep: Callable[[float], None] = time.sleep
) -> Document:
    """Poll the job until it has ended or is paused, and return it.

    A server that does not respond is retried for a minute. Raise CliError.
    """
    seen: str | None = None
    failures = 0
    while True:
        try:
            job = api.call("GET", job_path(job_id))
            events = new_events(api, job_id, seen)
        except ConnectionFailed:
            failures += 1
            if failures > _MAX_FAILED_POLLS:
                raise
            sleep(_POLL_SECONDS)
            continue
        failures = 0
        seen = events[-1]["id"] if events else seen
        display.show(job, events)
        if job["status"] not in WAITING:
            return dict(job)
        sleep(_POLL_SECONDS)


class LineDisplay:
    """Prints one line for each event."""

    def __init__(self, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._write = write
        self._as_json = as_json

    def show(self, job: Document, events: list[Document]) -> None:
        """See ProgressDisplay."""
        for event in events:
            self._write(json.dumps(event, ensure_ascii=False) if self._as_json else event["message"])


class BarDisplay:
    """A progress bar, with messages printed above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._losses: list[float] = []
        self._task = progress.add_task("", total=None, curve="", loss="")

    def show(self, job: Document, events: list[Document]) -> None:
        """See ProgressDisplay."""
        for event in events:
            if event["type"] == "metrics":
                self._losses += [event["data"]["train_loss"]] if "train_loss" in event["data"] else []
            else:
                self._progress.console.print(event["message"], markup=False, highlight=False)
        done = job.get("progress") or {}
        self._progress.update(
            self._task,
            description=job["status"].replace("_", " "),
            completed=done.get("step", 0),
            total=done.get("total_steps"),
            curve=sparkline(self._losses, _CURVE_WIDTH),
            loss=f"loss {self._losses[-1]:.4f}" if self._losses else "",
        )


@contextmanager
def progress_display(write: Callable[[str], None], *, as_json: bool) -> Iterator[ProgressDisplay]:
    """Yield a bar if stderr is a terminal, else a display that passes lines to `write`."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield LineDisplay(write, as_json=as_json)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[curve]} {task.fields[loss]}"),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        yield BarDisplay(progress)
