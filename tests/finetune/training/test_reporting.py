"""Reports of runs to the operator's services; a reporter's errors do not affect the run."""

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from thinned import thinned
from transformers import TrainerCallback, TrainingArguments
from transformers.integrations import integration_utils

from loragate.finetune.data.formats import Method
from loragate.finetune.run.trainer_environment import trainer_environment
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import Metrics
from tests.finetune.runs import RECIPES, make_tokens, run_training


class Recording(TrainerCallback):
    """Records its calls."""

    calls: ClassVar[list[str]] = []
    losses: ClassVar[list[float]] = []
    name: ClassVar[str | None] = None

    def on_train_begin(self, args: TrainingArguments, *_: Any, **named: Any) -> None:
        self.calls.append("begin")
        type(self).name = args.run_name

    def on_log(self, *_: Any, logs: dict[str, float], **named: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []

    def on_train_end(self, *_: Any, **named: Any) -> None:
        self.calls.append("end")


class Unreachable(TrainerCallback):
    """Raises OSError, as for an unreachable server or a full disk."""

    asked: ClassVar[list[None]] = []

    def on_log(self, *_: Any, **named: Any) -> None:
        self.asked.append(None)
        raise ConnectionError("connection refused")


class Absent(TrainerCallback):
    """A reporter whose package is not installed."""

    def __init__(self) -> None:
        raise RuntimeError("it requires a package")


@pytest.fixture
def _reporters(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"mlflow": Unreachable, "tensorboard": Absent, "wandb": Recording}
    for name, reporter in made.items():
        monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, name, reporter)
    for kept in (Recording.calls, Recording.losses, Unreachable.asked):
        kept.clear()


@pytest.mark.usefixtures("_reporters")
@pytest.mark.parametrize("method", thinned(Method, fast={Method.SUPERVISED, Method.CLASSIFY}))
def test_a_failing_reporter_ends_neither_the_run_nor_the_others(
    base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, method: Method
) -> None:
    shown: list[Metrics] = []
    tokens, reporters = make_tokens(tmp_path / "tokens", method), ("mlflow", "tensorboard", "wandb")
    with caplog.at_level(logging.WARNING, logger="loragate"):
        run_training(base, tokens, tmp_path / "run", RECIPES[method], shown.append, report_to=reporters)
    losses = [each.train_loss for each in shown if each.train_loss is not None]
    assert Recording.losses == losses
    assert Recording.calls == ["begin", "end"]
    assert Recording.name == "ftjob-1"
    assert len(Unreachable.asked) == 1
    words = [record.getMessage() for record in caplog.records if "no longer reported" in record.getMessage()]
    assert words == [
        "ftjob-1 is no longer reported by Absent: RuntimeError: it requires a package",
        "ftjob-1 is no longer reported by Unreachable: ConnectionError: connection refused",
    ]


def test_tensorboards_files_outlive_the_job(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "work" / "jobs" / "j" / "run"
    assignment = Assignment(RECIPES[Method.SUPERVISED], base, tmp_path, None, run, None, 64, 4, name="ftjob-1")
    boards = trainer_environment(assignment)["TENSORBOARD_LOGGING_DIR"]
    assert boards == str(tmp_path / "work" / "tensorboard" / "ftjob-1")
