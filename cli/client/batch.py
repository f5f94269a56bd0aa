"""A tenant's view of a batch over the API: followed to its end, and its results."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loragate.cli.client.http.api import Api, ConnectionFailed, path
from loragate.cli.client.transfer.download import fetch
from loragate.cli.errors import BAD_SETTING, CliError

BATCHES = "/v1/batches"
_ENDED = ("completed", "failed", "expired", "cancelled")
_POLL_SECONDS = 1.0
_MAX_FAILED_POLLS = 60  # in a row, while the server does not respond

Document = dict[str, Any]


def batch_path(batch_id: str, *more: str) -> str:
    """Return the path of a batch, or of a resource below it."""
    return path("v1", "batches", batch_id, *more)


def follow_batch(
    api: Api, batch_id: str, show: Callable[[Document], None], sleep: Callable[[float], None] = time.sleep
) -> Document:
    """Poll the batch until it has ended, and return it. A server that does not respond is retried for a minute. Raise
    CliError."""
    failures = 0
    while True:
        try:
            batch = dict(api.call("GET", batch_path(batch_id)))
        except ConnectionFailed:
            failures += 1
            if failures > _MAX_FAILED_POLLS:
                raise
        else:
            failures = 0
            show(batch)
            if batch["status"] in _ENDED:
                return batch
        sleep(_POLL_SECONDS)


class BatchBar:
    """A progress bar on stderr; elsewhere than on a terminal, a line for each change."""

    def __init__(self, write: Callable[[str], None]) -> None:
        console = Console(stderr=True)
        self._write = None if console.is_terminal else write
        self._shown = ""
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self.progress.add_task("", total=None, failed="")

    def show(self, batch: Document) -> None:
        """Show the batch's progress."""
        counts = batch["request_counts"]
        done, failed = counts["completed"] + counts["failed"], counts["failed"]
        words = batch["status"].replace("_", " ")
        trouble = f"{failed} failed" if failed else ""
        self.progress.update(
            self._task, description=words, completed=done, total=counts["total"] or None, failed=trouble
        )
        line = f"{words}: {done} of {counts['total']} lines" + (f", {trouble}" if trouble else "")
        line += f"; {batch['waits_for']}" if batch["waits_for"] else ""
        if self._write is not None and line != self._shown:
            self._write(line)
        self._shown = line


def download_results(api: Api, batch: Document, folder: Path) -> list[Path]:
    """Write the output file and the error file of a batch into a folder, which is created, and return those that there
    are. Raise CliError if one exists there already."""
    files = {"output.jsonl": batch["output_file_id"], "errors.jsonl": batch["error_file_id"]}
    wanted = {folder / f"{batch['id']}_{name}": file_id for name, file_id in files.items() if file_id is not None}
    for file in wanted:
        if file.exists():
            raise CliError(f"{file} exists already: choose another folder", BAD_SETTING)
    folder.mkdir(parents=True, exist_ok=True)
    for file, file_id in wanted.items():
        fetch(api, path("v1", "files", file_id, "content"), file)
    return list(wanted)


def problems_of(batch: Document) -> str:
    """Return why the batch failed, a line for each problem."""
    errors = (batch["errors"] or {}).get("data", [])
    places = ("" if error["line"] is None else f"line {error['line']}: " for error in errors)
    return "".join(f"\n  {place}{error['message']}" for place, error in zip(places, errors, strict=True))
