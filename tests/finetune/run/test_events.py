"""The events of a run: each step once, with its last values, in OpenAI's columns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loragate.finetune.run.events import RunEvents
from loragate.finetune.training.protocol.messages import Metrics

STEPS = [
    Metrics(1, 3, 0.3, train_loss=2.0, learning_rate=1e-3, grad_norm=0.5, token_accuracy=0.25),
    Metrics(2, 3, 0.6, train_loss=1.5, token_accuracy=0.5),
    Metrics(2, 3, 0.6, valid_loss=1.75, valid_token_accuracy=0.375),
    Metrics(3, 3, 1.0, train_loss=1.0),
]
CSV = b"""step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy
1,2.0,0.25,,
2,1.25,0.5,1.75,0.375
3,1.0,,,
"""


class RecordedEvents:
    """Replaces a job."""

    def __init__(self) -> None:
        self.job, self.worker = SimpleNamespace(id="ftjob-1"), "w1"
        self.said: list[tuple[str, Any]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield self

    async def progress(self, job_id: str, worker: str, step: int, steps: int | None) -> None:
        self.said.append(("progress", (step, steps)))

    async def log_event(self, job_id: str, message: str, *, type: str, data: Any) -> None:
        self.said.append((message, data))


async def test_a_run_as_a_table_and_as_messages(tmp_path: Path) -> None:
    received: Any = RecordedEvents()
    events = RunEvents(received, tmp_path)
    for metrics in STEPS:
        assert await events.add(metrics)
    await events.flush()
    words = [message for message, _ in received.said if message != "progress"]
    assert words[1:3] == ["Step 2/3, training loss=1.5000", "Step 2/3, validation loss=1.7500"]
    assert received.said[-1] == (
        "Step 3/3, training loss=1.0000",
        {"step": 3, "steps": 3, "epoch": 1.0, "train_loss": 1.0},
    )
    assert ("progress", (3, 3)) in received.said

    again = RunEvents(received, tmp_path)
    again.load()
    reported = len(received.said)
    assert not await again.add(STEPS[0]), "it was reported before"
    assert await again.add(Metrics(2, 3, 0.6, train_loss=1.25, token_accuracy=0.5)), "made once more, behind a fall"
    await again.flush()
    assert len(received.said) == reported + 2
    assert again.to_csv() == CSV
    assert again.metrics_at(2) == {
        "step": 2,
        "train_loss": 1.25,
        "train_mean_token_accuracy": 0.5,
        "valid_loss": 1.75,
        "valid_mean_token_accuracy": 0.375,
    }
    assert again.result_metrics(3) == again.metrics_at(2), "the only one that was judged"
    for worse in (Metrics(3, 3, 1.0, valid_loss=2.0), Metrics(4, 3, 1.0, valid_loss=1.75)):
        await again.add(worse)
    assert again.result_metrics(4) == again.metrics_at(2), "of the best the first"
    assert RunEvents(received, tmp_path / "other").result_metrics(3) == {}
