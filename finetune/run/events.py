"""Metrics of a run as job events: collected for a moment, then written to the database in one transaction."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loragate.adapter_store.errors import StoreError
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.training.protocol.messages import Metrics

_FLUSH_SECONDS = 1.0
METRICS = "metrics.jsonl"
_CLASSIFIER_METRICS = {name: name for name in ("valid_accuracy", "valid_macro_f1", "valid_mse", "valid_pearson")}
_RESULT_COLUMNS = {
    "step": "step",
    "train_loss": "train_loss",
    "train_accuracy": "token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_token_accuracy",
}
_CHECKPOINT_METRICS = {
    "step": "step",
    "train_loss": "train_loss",
    "train_mean_token_accuracy": "token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_token_accuracy",
    **_CLASSIFIER_METRICS,
}
_WORDS = {"accuracy": "accuracy", "macro_f1": "macro F1", "mse": "mean squared error", "pearson": "correlation"}

_Row = dict[str, Any]


class RunEvents:
    """The metrics of one run, also stored in its folder for the result file.

    Metrics that are already known, as after resuming from a checkpoint, are not recorded again. For a step that was
    computed twice, before and after a crash, the last computation counts.
    """

    def __init__(self, lease: WorkerLease, folder: Path) -> None:
        self._lease = lease
        self._path = folder / METRICS
        self._known: set[str] = set()
        self._rows: dict[int, _Row] = {}
        self._pending: list[Metrics] = []
        self._flushed_at = time.monotonic()

    def load(self) -> None:
        """Load the metrics in the run's folder."""
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            self._known.add(line)
            self._enter(json.loads(line))

    async def add(self, metrics: Metrics) -> bool:
        """Add metrics, which are written to the database within a second or so. Return whether they are new.

        Raise LeaseLost, OSError.
        """
        line = json.dumps(asdict(metrics))
        if line in self._known:
            return False
        self._known.add(line)
        self._enter(asdict(metrics))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"{line}\n")
        self._pending.append(metrics)
        if time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            with suppress(StoreError):  # tried again later
                await self.flush()
        return True

    async def flush(self) -> None:
        """Write all pending metrics to the database. Raise LeaseLost, StoreError."""
        if not self._pending:
            return
        job_id, last = self._lease.job.id, self._pending[-1]
        async with self._lease.transaction() as work:
            await work.progress(job_id, self._lease.worker, last.step, last.steps)
            for metrics in self._pending:
                await work.log_event(job_id, _message(metrics), type="metrics", data=_without_nulls(asdict(metrics)))
        self._pending.clear()
        self._flushed_at = time.monotonic()

    def metrics_at(self, step: int) -> dict[str, float]:
        """Return the metrics of a step by the names that OpenAI's checkpoints use."""
        row = self._rows.get(step, {})
        return {name: row[field] for name, field in _CHECKPOINT_METRICS.items() if field in row}

    def result_metrics(self, steps: int) -> dict[str, float]:
        """Return the metrics of the result after `steps` steps: of the best evaluated step, if any was evaluated."""
        evaluated = [(row["valid_loss"], step) for step, row in self._rows.items() if "valid_loss" in row]
        return self.metrics_at(min(evaluated)[1] if evaluated else steps)

    def to_csv(self) -> bytes:
        """Return the metrics of all steps in OpenAI's columns, and those of a classifier behind them."""
        known = frozenset[str]().union(*self._rows.values())
        columns = _RESULT_COLUMNS | {name: field for name, field in _CLASSIFIER_METRICS.items() if field in known}
        lines = [",".join(columns)]
        for _, row in sorted(self._rows.items()):
            lines.append(",".join(str(row.get(field, "")) for field in columns.values()))
        return ("\n".join(lines) + "\n").encode()

    def _enter(self, row: _Row) -> None:
        self._rows.setdefault(row["step"], {}).update(_without_nulls(row))


def _without_nulls(row: _Row) -> _Row:
    return {name: value for name, value in row.items() if value is not None}


def _message(metrics: Metrics) -> str:
    parts = [f"Step {metrics.step}" if metrics.steps is None else f"Step {metrics.step}/{metrics.steps}"]
    if metrics.train_loss is not None:
        parts.append(f"training loss={metrics.train_loss:.4f}")
    if metrics.valid_loss is not None:
        parts.append(f"validation loss={metrics.valid_loss:.4f}")
    parts += [f"{words}={value:.4f}" for name, words in _WORDS.items() if (value := _valid(metrics, name)) is not None]
    return ", ".join(parts)


def _valid(metrics: Metrics, name: str) -> float | None:
    value: float | None = getattr(metrics, f"valid_{name}")
    return value


def evaluation_message(evaluation: Mapping[str, Any]) -> str:
    """Return the text of the event with the evaluation of a result."""
    parts = [f"{words}={evaluation[name]:.4f}" for name, words in _WORDS.items() if evaluation[name] is not None]
    return f"The result on the {evaluation['examples']} validation examples: {', '.join(parts)}."
