"""The callback that reports a run's metrics, throttles it, and ends it."""

import math
import threading
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from loragate.finetune.data.streaming_token_file import POLL_SECONDS
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.trainers.classifier_metrics import SCALARS
from loragate.finetune.training.trainers.trainer_arguments import known_steps

_POLLS_BEFORE_REPORT = 20  # without a step between them


class TrainingFailed(Exception):
    """The run ended without a usable adapter. The message is shown to the tenant."""


class Interrupted(Exception):
    """The run was stopped while it waited for data."""


class RunCallback(TrainerCallback):
    """Reports each step to `on_metrics`. Once `stop` is set, the run ends after its step, with a checkpoint.

    `throttle` is called between micro-batches. `on_waiting` is called at most once between two steps, when there has
    been nothing to train on for a while.
    """

    def __init__(
        self,
        on_metrics: Callable[[Metrics], None],
        stop: threading.Event,
        throttle: Callable[[], None],
        on_waiting: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_metrics = on_metrics
        self._stop = stop
        self._throttle = throttle
        self._on_waiting = on_waiting
        self._polls = 0
        self._step = 0

    @property
    def stopped(self) -> bool:
        """Whether the run is to end early."""
        return self._stop.is_set()

    def pause(self) -> None:
        """Wait a moment for data. Raise Interrupted as soon as the run is to stop."""
        self._throttle()
        if self._stop.wait(POLL_SECONDS):
            raise Interrupted
        self._polls += 1
        if self._polls == _POLLS_BEFORE_REPORT:
            self._on_waiting(self._step)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._throttle()

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._throttle()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._throttle()
        self._polls, self._step = 0, state.global_step
        if self._stop.is_set():
            control.should_save = control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report the metrics. Raise TrainingFailed if one is not finite: all later steps would be invalid, too."""
        logs = logs or {}
        for name in ("loss", "grad_norm", "eval_loss"):
            if name in logs and not math.isfinite(logs[name]):
                raise TrainingFailed(
                    f"The {name.replace('_', ' ')} became {logs[name]} at step {state.global_step}: the training has "
                    "diverged. Lower `learning_rate_multiplier`, or look for outliers in the data."
                )
        metrics = _metrics(logs, state.global_step, known_steps(state.max_steps), float(state.epoch or 0))
        if metrics is not None:
            self._on_metrics(metrics)


def recorded_metrics(trainer_state: dict[str, Any]) -> list[Metrics]:
    """Return the metrics in a checkpoint's state, because the worker may have missed the last of them."""
    steps = known_steps(trainer_state["max_steps"])
    entries = (_metrics(logs, logs["step"], steps, logs["epoch"]) for logs in trainer_state["log_history"])
    return [metrics for metrics in entries if metrics is not None]


def _metrics(logs: dict[str, Any], step: int, steps: int | None, epoch: float) -> Metrics | None:
    if "loss" not in logs and "eval_loss" not in logs:
        return None
    return Metrics(
        step=step,
        steps=steps,
        epoch=epoch,
        train_loss=logs.get("loss"),
        learning_rate=logs.get("learning_rate"),
        grad_norm=logs.get("grad_norm"),
        token_accuracy=logs.get("mean_token_accuracy"),
        valid_loss=logs.get("eval_loss"),
        valid_token_accuracy=logs.get("eval_mean_token_accuracy"),
        **{f"valid_{name}": logs.get(f"eval_{name}") for name in SCALARS},
    )
