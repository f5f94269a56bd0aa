"""The training process: its messages, how it is stopped, and what remains when it is killed."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from loragate.finetune.config import TrainerPatience
from loragate.finetune.data.formats import Method
from loragate.finetune.run.trainer_process import training
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import (
    Checkpointed,
    Failed,
    Finished,
    Stepped,
    Stopped,
    TrainerMessage,
)
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings
from tests.finetune.runs import EXAMPLES, RECIPES, make_tokens

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
    )


@pytest.fixture
def assignment(base: Path, tokens: Path, tmp_path: Path) -> Assignment:
    return assigned(base, tokens, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(base: Path, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TrainerMessage]]:
    """An uninterrupted run: its folder, and its messages."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, asyncio.run(received(assigned(base, tokens, folder)))


async def received(assignment: Assignment) -> list[TrainerMessage]:
    async with training(assignment, TrainerPatience()) as trainer:
        return [news async for news in trainer.messages()]


def losses(news: list[TrainerMessage]) -> dict[int, float | None]:
    return {each.metrics.step: each.metrics.train_loss for each in news if isinstance(each, Stepped)}


def test_an_assignment_survives_json(assignment: Assignment, tmp_path: Path) -> None:
    assert Assignment.from_document(json.loads(json.dumps(assignment.to_document()))) == assignment


@pytest.mark.long
def test_a_run_reports_its_steps_its_checkpoints_and_its_end(whole: tuple[Path, list[TrainerMessage]]) -> None:
    folder, news = whole
    assert isinstance(news[-1], Finished)
    assert news[-1].steps == STEPS
    assert list(range(1, STEPS + 1)) == sorted(losses(news))
    assert Checkpointed("checkpoint-4") in news
    adapter = folder / news[-1].folder
    assert {path.name for path in adapter.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    tensors = load_file(adapter / "adapter_model.safetensors")
    assert any(abs(tensor).max() > 0 for name, tensor in tensors.items() if "lora_B" in name)


@pytest.mark.long
async def test_killed_and_stopped_runs_resume_to_the_same_curve(
    assignment: Assignment, whole: tuple[Path, list[TrainerMessage]], capfd: pytest.CaptureFixture[str]
) -> None:
    killed: list[TrainerMessage] = []
    async with training(assignment, TrainerPatience()) as trainer:
        async for news in trainer.messages():
            killed.append(news)
            if news == Checkpointed("checkpoint-4"):
                reported = Path(f"/proc/{trainer.pid}/oom_score_adj").read_text()
                os.kill(trainer.pid, signal.SIGKILL)
    assert killed[-1] == Failed("trainer_died", "The training process died (signal 9).")
    assert reported == "1000\n", "a machine without memory kills training before what serves"

    stopped: list[TrainerMessage] = []
    async with training(assignment, TrainerPatience()) as trainer:
        async for news in trainer.messages():
            stopped.append(news)
            if isinstance(news, Stepped) and news.metrics.step == 9:
                trainer.stop()
    assert isinstance(stopped[-1], Stopped)
    assert stopped[-1].steps < STEPS
    rest = await received(assignment)
    assert isinstance(rest[-1], Finished)
    steps = [each.metrics.step for each in rest if isinstance(each, Stepped)]
    assert steps == list(range(1, STEPS + 1)), "earlier steps are reported again: the worker may have missed them"
    assert losses(killed) | losses(stopped) | losses(rest) == losses(rest) == losses(whole[1])
    assert "kernels" not in capfd.readouterr().err, "what libraries miss is nothing to their users"


@pytest.mark.long
async def test_a_run_that_exceeds_its_memory_limit_reports_it(assignment: Assignment) -> None:
    news = await received(replace(assignment, settings=TrainerSettings(memory_bytes=4 << 20)))
    assert isinstance(news[-1], Failed)
    assert (news[-1].code, len(news)) == ("out_of_memory", 1)
    assert "lower `batch_size`" in news[-1].message
