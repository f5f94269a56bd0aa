"""Runs on a file that grows: their steps equal those of the whole file, whenever it grew and the run was stopped."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from thinned import thinned

from loragate.finetune.data.formats import Method
from loragate.finetune.data.streaming_token_file import StreamingTokenFile, StreamingTokenWriter
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.checkpoints.checkpoint import checkpoints_in
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.trainers.callback import TrainingFailed
from tests.finetune.runs import RECIPES, examples, make_base, make_tokens, run_training

pytestmark = pytest.mark.usefixtures("one_thread")

EXAMPLES = 18
STEPS = 5  # of four, the last of two


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


class Growing:
    """A file, and the code that appends to it."""

    def __init__(self, folder: Path, method: Method) -> None:
        self._writer = StreamingTokenWriter(folder)
        self._rest = list(examples(method, EXAMPLES))
        self.tokens = StreamingTokenFile(folder)

    def append(self, count: int) -> None:
        batch, self._rest = self._rest[:count], self._rest[count:]
        for example in batch:
            for sample in example:
                self._writer.add(sample)
        self._writer.publish()

    def finish(self) -> None:
        with self._writer:
            self.append(EXAMPLES)
            self._writer.finish({})


def resolve_recipe(method: Method, **more: object) -> Recipe:
    """Return a recipe in which two examples go through the model at once, so that a step has two parts."""
    return replace(RECIPES[method], **{"epochs": 1, "streaming": True, "max_length": 32, "lora_dropout": 0.1, **more})  # type: ignore[arg-type]


def losses(reported: list[Metrics]) -> dict[int, float]:
    return {each.step: each.train_loss for each in reported if each.train_loss is not None}


def whole_curve(base: Path, folder: Path, recipe: Recipe) -> tuple[dict[int, float], list[Metrics]]:
    """Return the curve of a file that was complete from the start."""
    growing = Growing(folder / "whole", recipe.method)
    growing.finish()
    reported: list[Metrics] = []
    run_training(base, growing.tokens, folder / "whole-run", recipe, reported.append)
    return losses(reported), reported


@pytest.mark.parametrize(
    "method", thinned([Method.SUPERVISED, Method.DPO], fast={Method.DPO})
)  # a growing file does not have all labels
def test_the_curve_does_not_depend_on_how_the_file_grew(base: Path, tmp_path: Path, method: Method) -> None:
    growing = Growing(tmp_path / "t", method)
    reported: list[Metrics] = []
    waited: list[int] = []

    def on_step(metrics: Metrics) -> None:
        """Append three more: never a whole step's."""
        reported.append(metrics)
        if not waited:
            growing.append(3)

    def on_wait(steps: int) -> None:
        """Append the rest and close the file, as nothing else arrives."""
        waited.append(steps)
        growing.finish()

    growing.append(5)
    _, steps = run_training(base, growing.tokens, tmp_path / "run", resolve_recipe(method), on_step, waits=on_wait)
    assert steps == STEPS
    assert waited == [2], "eleven examples had come, and two steps of four were made"
    curve, whole = whole_curve(base, tmp_path, resolve_recipe(method))
    assert losses(reported) == curve
    assert list(curve) == list(range(1, STEPS + 1))
    assert [each.steps for each in whole] == [None] * STEPS
    rates = [each.learning_rate or 0 for each in whole]
    assert rates == sorted(rates), "warm-up without decay: the number of steps is unknown"


def test_a_run_stopped_while_waiting_resumes_to_the_same_curve(base: Path, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "t", Method.SUPERVISED)
    growing.append(10)
    reported: list[Metrics] = []
    stop = threading.Event()
    recipe = resolve_recipe(Method.SUPERVISED)
    stopped = run_training(
        base, growing.tokens, tmp_path / "run", recipe, reported.append, stop=stop, waits=lambda _: stop.set()
    )
    assert stopped[1] == 2
    assert [each.name for each in checkpoints_in(tmp_path / "run")] == ["checkpoint-2"]
    growing.finish()
    assert run_training(base, growing.tokens, tmp_path / "run", recipe, reported.append)[1] == STEPS
    assert losses(reported) == whole_curve(base, tmp_path, recipe)[0]
    assert run_training(base, growing.tokens, tmp_path / "run", recipe, reported.append)[1] == STEPS, (
        "it has ended, and ends again"
    )


def test_the_rate_decays_if_the_number_of_steps_is_known(base: Path, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "t", Method.SUPERVISED)
    growing.append(12)
    reported: list[Metrics] = []
    recipe = resolve_recipe(Method.SUPERVISED, n_steps=3, lr_scheduler="cosine", warmup_ratio=0.0)
    assert run_training(base, growing.tokens, tmp_path / "run", recipe, reported.append)[1] == 3
    growing.finish()
    assert [each.steps for each in reported] == [3, 3, 3]
    assert reported[2].learning_rate < reported[0].learning_rate  # type: ignore[operator]


def test_later_epochs_read_the_closed_file_in_other_orders(base: Path, tmp_path: Path) -> None:
    recipe = resolve_recipe(Method.SUPERVISED, epochs=2)
    curve, _ = whole_curve(base, tmp_path, recipe)
    assert list(curve) == list(range(1, 2 * EXAMPLES // 4 + 1))


def test_the_last_step_is_evaluated_and_the_best_is_the_result(base: Path, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "t", Method.SUPERVISED)
    growing.finish()
    reported: list[Metrics] = []
    valid = make_tokens(tmp_path / "valid", Method.SUPERVISED)
    run_training(
        base, growing.tokens, tmp_path / "run", resolve_recipe(Method.SUPERVISED), reported.append, valid=valid
    )
    assert [each.step for each in reported if each.valid_loss is not None] == [4, STEPS]


def test_a_closed_file_with_nothing_to_learn_is_reported(base: Path, tmp_path: Path) -> None:
    with StreamingTokenWriter(tmp_path / "t") as writer:
        writer.finish({})
    tokens = StreamingTokenFile(tmp_path / "t")
    with pytest.raises(TrainingFailed, match="longer than `max_length`"):
        run_training(base, tokens, tmp_path / "run", resolve_recipe(Method.SUPERVISED), lambda _: None)
    assert len(TokenFile(tmp_path / "t")) == 0
