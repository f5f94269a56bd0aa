"""A trainer that hangs is killed: after an order, and for its silence. One that is only slow is not."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from loragate.finetune.config import TrainerPatience
from loragate.finetune.data.formats import Method
from loragate.finetune.run.trainer_process import TrainerProcess, training
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import Failed, Finished, TrainerMessage, Waiting
from tests.finetune.runs import RECIPES

HANGING = Path(__file__).parents[1] / "hanging_trainer.py"


def hang(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("loragate.finetune.run.trainer_process._COMMAND", (sys.executable, str(HANGING), how))


def assignment(folder: Path) -> Assignment:
    run = folder / "work" / "jobs" / "ftjob-1" / "run"
    return Assignment(RECIPES[Method.SUPERVISED], folder, folder, None, run, None, 64, 4)


async def until_it_hangs(trainer: TrainerProcess, then: Callable[[], object] = lambda: None) -> list[TrainerMessage]:
    """Call `then` when it hangs; return all messages, of which the first says that it is about to hang."""
    messages = trainer.messages()
    first = await anext(messages)
    assert first == Waiting(0)
    await asyncio.sleep(0.2)
    then()
    return [first, *[message async for message in messages]]


@pytest.mark.parametrize("how", ["holding", "deaf"])
async def test_an_order_kills_it_while_its_messages_are_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hang(monkeypatch, how)
    patience = TrainerPatience(stop_seconds=0.3, silence_seconds=60)
    async with asyncio.timeout(30), training(assignment(tmp_path), patience) as trainer:
        loop = asyncio.get_running_loop()
        messages = await until_it_hangs(trainer, lambda: loop.call_later(0.2, trainer.stop))
    assert messages[-1] == Failed("trainer_died", "The training process died (signal 9).")
    assert trainer.killed
    assert not psutil.pid_exists(trainer.pid)


async def test_the_earliest_end_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(monkeypatch, "deaf")
    patience = TrainerPatience(stop_seconds=0.3, silence_seconds=60)
    async with asyncio.timeout(30), training(assignment(tmp_path), patience) as trainer:

        def stop() -> None:
            trainer.stop(within=60)
            trainer.stop()
            trainer.stop(within=60)

        await until_it_hangs(trainer, stop)
    assert trainer.killed


async def test_one_that_holds_the_interpreter_falls_silent_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(monkeypatch, "holding")
    patience = TrainerPatience(stop_seconds=60, silence_seconds=2)
    async with asyncio.timeout(30), training(assignment(tmp_path), patience) as trainer:
        messages = await until_it_hangs(trainer)
    assert messages[-1] == Failed("trainer_died", "The training process did not respond for 2 seconds and was killed.")
    assert trainer.killed


async def test_one_that_computes_for_longer_than_it_may_be_silent_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(monkeypatch, "slow")
    patience = TrainerPatience(stop_seconds=60, silence_seconds=0.8)
    started = time.monotonic()
    async with asyncio.timeout(30), training(assignment(tmp_path), patience) as trainer:
        messages = await until_it_hangs(trainer)
    assert messages == [Waiting(0), Finished(1, "adapter")]
    assert time.monotonic() - started > 0.8
    assert not trainer.killed


async def test_the_end_of_the_worker_kills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(monkeypatch, "holding")
    patience = TrainerPatience(stop_seconds=0.3, silence_seconds=60)
    async with asyncio.timeout(30), training(assignment(tmp_path), patience) as trainer:
        pass
    assert trainer.killed
    assert not psutil.pid_exists(trainer.pid)
