"""The process that trains: what it says, how it is stopped, and what is left when it is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from loragate.finetune.data.formats import Method
from loragate.finetune.trainer_process import training
from loragate.finetune.training.assignment import Assignment
from loragate.finetune.training.news import Checkpointed, Failed, Finished, News, Stepped, Stopped

from .runs import EXAMPLES, RECIPES, make_tokens

STEPS = 2 * EXAMPLES // 4


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokens(tmp_path_factory.mktemp("data") / "tokens", Method.SUPERVISED).folder


def assigned(base: Path, tokens: Path, folder: Path) -> Assignment:
    return Assignment(
        recipe=RECIPES[Method.SUPERVISED],
        base=base,
        train=tokens,
        valid=None,
        folder=folder,
        start=None,
        row_tokens=64,
        checkpoint_steps=4,
        threads=1,
    )


@pytest.fixture
def assignment(base: Path, tokens: Path, tmp_path: Path) -> Assignment:
    return assigned(base, tokens, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(base: Path, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[News]]:
    """A run that nobody disturbed: its folder, and what it said."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, asyncio.run(heard(assigned(base, tokens, folder)))


async def heard(assignment: Assignment) -> list[News]:
    async with training(assignment) as trainer:
        return [news async for news in trainer.news()]


def losses(news: list[News]) -> dict[int, float | None]:
    return {each.metrics.step: each.metrics.train_loss for each in news if isinstance(each, Stepped)}


def test_an_assignment_survives_json(assignment: Assignment, tmp_path: Path) -> None:
    assert Assignment.of_document(json.loads(json.dumps(assignment.to_document()))) == assignment


def test_a_run_tells_its_steps_its_checkpoints_and_its_end(whole: tuple[Path, list[News]]) -> None:
    folder, news = whole
    assert isinstance(news[-1], Finished)
    assert news[-1].steps == STEPS
    assert list(range(1, STEPS + 1)) == sorted(losses(news))
    assert Checkpointed("checkpoint-4") in news
    adapter = folder / news[-1].folder
    assert {path.name for path in adapter.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    tensors = load_file(adapter / "adapter_model.safetensors")
    assert any(abs(tensor).max() > 0 for name, tensor in tensors.items() if "lora_B" in name)


async def test_one_that_is_stopped_goes_on_later_to_the_same_curve(
    assignment: Assignment, whole: tuple[Path, list[News]]
) -> None:
    first: list[News] = []
    async with training(assignment) as trainer:
        async for news in trainer.news():
            first.append(news)
            if isinstance(news, Stepped) and news.metrics.step == 5:
                trainer.stop()
    assert isinstance(first[-1], Stopped)
    rest = await heard(assignment)
    assert isinstance(rest[-1], Finished)
    told = [each.metrics.step for each in rest if isinstance(each, Stepped)]
    assert told == list(range(1, STEPS + 1)), "what was told before is told again: its worker may have missed it"
    assert losses(first) | losses(rest) == losses(rest) == losses(whole[1])


async def test_one_that_is_killed_says_so_and_goes_on_from_its_checkpoint_to_the_same_curve(
    assignment: Assignment, whole: tuple[Path, list[News]]
) -> None:
    news: list[News] = []
    async with training(assignment) as trainer:
        async for each in trainer.news():
            news.append(each)
            if each == Checkpointed("checkpoint-4"):
                os.kill(trainer.pid, signal.SIGKILL)
    assert news[-1] == Failed("trainer_died", "The training process ended by itself (signal 9).")
    rest = await heard(assignment)
    assert isinstance(rest[-1], Finished)
    assert losses(rest) | losses(news) == losses(rest) == losses(whole[1])


async def test_a_run_that_needs_more_memory_than_it_may_take_says_so(assignment: Assignment) -> None:
    news = await heard(replace(assignment, memory_bytes=4 << 20))
    assert isinstance(news[-1], Failed)
    assert (news[-1].code, len(news)) == ("out_of_memory", 1)
    assert "lower `batch_size`" in news[-1].message


async def test_a_machine_without_memory_kills_training_before_what_serves(assignment: Assignment) -> None:
    async with training(assignment) as trainer:
        await anext(trainer.news())
        assert Path(f"/proc/{trainer.pid}/oom_score_adj").read_text() == "1000\n"


async def test_what_went_wrong_is_said_in_words(assignment: Assignment, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the run's folder should be")
    news = await heard(Assignment(**{**vars(assignment), "folder": blocked / "run"}))
    assert isinstance(news[-1], Failed)
    assert news[-1].code == "insufficient_storage"


def test_without_its_worker_it_stops(assignment: Assignment) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "loragate.finetune.training.child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    said, _ = process.communicate(json.dumps(assignment.to_document()) + "\n", timeout=200)
    last = json.loads(said.splitlines()[-1])
    assert (last["kind"], process.returncode) == ("Stopped", 0)
    assert last["steps"] < STEPS
