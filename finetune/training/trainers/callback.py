"""What goes on in a run, for whoever follows it; and how they end it."""

import math
import threading
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from loragate.finetune.data.streaming_token_file import POLL_SECONDS
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.trainers.trainer_arguments import known_steps

_WORTH_TELLING = 20  # pauses without a step between


class TrainingFailed(Exception):
    """The run has ended without an adapter worth keeping. Its text is for the tenant."""


class Interrupted(Exception):
    """Whoever waits for data is to stop, and keep where he is."""


class RunCallback(TrainerCallback):
    """`told` hears of each step; `stop` set, the run ends behind the step, with a checkpoint.

    `breathe` is called between micro-batches: whoever shares the machine gets his turn there. `waits` hears that there
    has been nothing to train on for a while, once between two steps.
    """

    def __init__(
        self,
        told: Callable[[Metrics], None],
        stop: threading.Event,
        breathe: Callable[[], None],
        waits: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._told = told
        self._stop = stop
        self._breathe = breathe
        self._waits = waits
        self._pauses = 0
        self._step = 0

    def pause(self) -> None:
        """A moment, since there is nothing to train on. Raises Interrupted, as soon as the run is to stop."""
        self._breathe()
        if self._stop.wait(POLL_SECONDS):
            raise Interrupted
        self._pauses += 1
        if self._pauses == _WORTH_TELLING:
            self._waits(self._step)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._breathe()

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._breathe()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._breathe()
        self._pauses, self._step = 0, state.global_step
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
        """Raises TrainingFailed for a loss that is no number: what comes after it would not be one either."""
        logs = logs or {}
        for name in ("loss", "grad_norm", "eval_loss"):
            if name in logs and not math.isfinite(logs[name]):
                raise TrainingFailed(
                    f"The {name.replace('_', ' ')} became {logs[name]} at step {state.global_step}: the training has "
                    "diverged. Lower `learning_rate_multiplier`, or look for outliers in the data."
                )
        metrics = _metrics(logs, state.global_step, known_steps(state.max_steps), float(state.epoch or 0))
        if metrics is not None:
            self._told(metrics)


def recorded_metrics(trainer_state: dict[str, Any]) -> list[Metrics]:
    """What a checkpoint's state remembers of its run: whoever followed it may have missed the last of it."""
    steps = known_steps(trainer_state["max_steps"])
    all_of_them = (_metrics(logs, logs["step"], steps, logs["epoch"]) for logs in trainer_state["log_history"])
    return [metrics for metrics in all_of_them if metrics is not None]


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
    )
