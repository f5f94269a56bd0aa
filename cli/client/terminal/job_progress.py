"""Following a job to its end: what happens, in words; on a terminal also how far it is, and its loss as a curve."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loragate.cli.client.http.api import Api, Broken
from loragate.cli.client.job import WAITING, Document, job_path, new_events
from loragate.cli.client.terminal.sparkline import sparkline

_LOOK_SECONDS = 1.0
_PATIENCE = 60  # looks at a server that does not answer
_CURVE = 32  # characters


class Screen(Protocol):
    """Whoever shows what happens."""

    def show(self, job: Document, events: list[Document]) -> None:
        """How the job is, and what has happened since the last time, oldest first."""
        ...


def follow(api: Api, job_id: str, screen: Screen, sleep: Callable[[float], None] = time.sleep) -> Document:
    """The job, once it waits for nobody but its tenant. Raises Refusal; a server that is away is waited for."""
    seen: str | None = None
    failures = 0
    while True:
        try:
            job = api.call("GET", job_path(job_id))
            events = new_events(api, job_id, seen)
        except Broken:
            failures += 1
            if failures > _PATIENCE:
                raise
            sleep(_LOOK_SECONDS)
            continue
        failures = 0
        seen = events[-1]["id"] if events else seen
        screen.show(job, events)
        if job["status"] not in WAITING:
            return dict(job)
        sleep(_LOOK_SECONDS)


class Lines:
    """One line for each event."""

    def __init__(self, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._write = write
        self._as_json = as_json

    def show(self, job: Document, events: list[Document]) -> None:
        """See Screen."""
        for event in events:
            self._write(json.dumps(event, ensure_ascii=False) if self._as_json else event["message"])


class Bar:
    """A line that moves, with what is more than figures above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._losses: list[float] = []
        self._task = progress.add_task("", total=None, curve="", loss="")

    def show(self, job: Document, events: list[Document]) -> None:
        """See Screen."""
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
            curve=sparkline(self._losses, _CURVE),
            loss=f"loss {self._losses[-1]:.4f}" if self._losses else "",
        )


@contextmanager
def screen(write: Callable[[str], None], *, as_json: bool) -> Iterator[Screen]:
    """A bar on stderr where that is a terminal; else lines, to `write`."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield Lines(write, as_json=as_json)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[curve]} {task.fields[loss]}"),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        yield Bar(progress)
