"""What happened in a run, on its way into the database: gathered for a moment, then told in one transaction."""

import json
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loragate.adapter_store.errors import StoreError
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.training.protocol.messages import Metrics

_GATHER_SECONDS = 1.0
METRICS = "metrics.jsonl"
_COLUMNS = {
    "step": "step",
    "train_loss": "train_loss",
    "train_accuracy": "token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_token_accuracy",
}
_OF_A_CHECKPOINT = {
    "step": "step",
    "train_loss": "train_loss",
    "train_mean_token_accuracy": "token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_token_accuracy",
}

_Row = dict[str, Any]


class RunEvents:
    """Of one run, whose metrics are also kept in its folder, for the result file.

    What it has heard already, as of a run that goes on from a checkpoint, is not told again. A step that was made
    twice, before and after a fall, counts as it was made last.
    """

    def __init__(self, held: WorkerLease, folder: Path) -> None:
        self._held = held
        self._path = folder / METRICS
        self._heard: set[str] = set()
        self._rows: dict[int, _Row] = {}
        self._untold: list[Metrics] = []
        self._told_at = time.monotonic()

    def load(self) -> None:
        """What is in its folder."""
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            self._heard.add(line)
            self._enter(json.loads(line))

    async def add(self, metrics: Metrics) -> bool:
        """Whether they are new; told with those that come soon after. Raises LeaseLost, OSError."""
        line = json.dumps(asdict(metrics))
        if line in self._heard:
            return False
        self._heard.add(line)
        self._enter(asdict(metrics))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"{line}\n")
        self._untold.append(metrics)
        if time.monotonic() - self._told_at >= _GATHER_SECONDS:
            with suppress(StoreError):  # another time
                await self.tell()
        return True

    async def tell(self) -> None:
        """All that is untold. Raises LeaseLost, StoreError."""
        if not self._untold:
            return
        job_id, last = self._held.job.id, self._untold[-1]
        async with self._held.transaction() as work:
            await work.progress(job_id, self._held.worker, last.step, last.steps)
            for metrics in self._untold:
                await work.tell(job_id, _words(metrics), type="metrics", data=_known(asdict(metrics)))
        self._untold.clear()
        self._told_at = time.monotonic()

    def at(self, step: int) -> dict[str, float]:
        """What is known of a step, as OpenAI calls it in checkpoints."""
        row = self._rows.get(step, {})
        return {name: row[field] for name, field in _OF_A_CHECKPOINT.items() if field in row}

    def result_metrics(self, steps: int) -> dict[str, float]:
        """The same of what came out after so many: the best that was judged, where there was something to judge by."""
        judged = [(row["valid_loss"], step) for step, row in self._rows.items() if "valid_loss" in row]
        return self.at(min(judged)[1] if judged else steps)

    def to_csv(self) -> bytes:
        """OpenAI's columns."""
        lines = [",".join(_COLUMNS)]
        for _, row in sorted(self._rows.items()):
            lines.append(",".join(str(row.get(field, "")) for field in _COLUMNS.values()))
        return ("\n".join(lines) + "\n").encode()

    def _enter(self, row: _Row) -> None:
        self._rows.setdefault(row["step"], {}).update(_known(row))


def _known(row: _Row) -> _Row:
    return {name: value for name, value in row.items() if value is not None}


def _words(metrics: Metrics) -> str:
    said = [f"Step {metrics.step}" if metrics.steps is None else f"Step {metrics.step}/{metrics.steps}"]
    if metrics.train_loss is not None:
        said.append(f"training loss={metrics.train_loss:.4f}")
    if metrics.valid_loss is not None:
        said.append(f"validation loss={metrics.valid_loss:.4f}")
    return ", ".join(said)
