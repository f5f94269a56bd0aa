"""Every way in which a run ends is reported with its reason, and registers nothing; TRL's arguments; where a run
starts.
"""

import errno
import io
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import JobStatus
from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_file import TokenFileWriter
from loragate.finetune.training import session
from loragate.finetune.training.checkpoints.checkpoint import Checkpoint, CheckpointWriter
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.message_writer import MessageWriter
from loragate.finetune.training.protocol.messages import Failed
from loragate.finetune.training.trainers.callback import TrainingFailed
from tests.finetune.runs import RECIPES, make_tokens
from tests.finetune.worker_world import World, chats, ended

FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: list[tuple[BaseException, str, str]] = [
    (MemoryError(), "out_of_memory", "lower `batch_size`"),
    (torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory", "lower `batch_size`"),
    (FULL, "insufficient_storage", "No space left on device"),
    (TrainingFailed("The loss became nan at step 3."), "training_failed", "nan at step 3"),
]


@pytest.fixture
def assignment(base: Path, tmp_path: Path) -> Assignment:
    recipe = RECIPES[Method.SUPERVISED]
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED).folder
    return Assignment(recipe, base, tokens, None, tmp_path / "work" / "jobs" / "j" / "run", None, 64, 4)


@pytest.mark.parametrize(("fault", "code", "words"), ENDS, ids=lambda value: str(value)[:20])
def test_each_error_has_a_code_and_a_message(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch, fault: BaseException, code: str, words: str
) -> None:
    def failing(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(session, "train", failing)
    stop = threading.Event()
    news = session._outcome(assignment, stop, session.Throttle(1, stop), MessageWriter(io.StringIO()))
    assert isinstance(news, Failed)
    assert news.code == code
    assert words in news.message


def test_a_folder_that_cannot_be_created_is_reported(assignment: Assignment, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the run's folder should be")
    stop = threading.Event()
    news = session._outcome(
        replace(assignment, folder=blocked / "run"), stop, session.Throttle(1, stop), MessageWriter(io.StringIO())
    )
    assert isinstance(news, Failed)
    assert (news.code, news.message) == (
        "insufficient_storage", "The training files cannot be written: Not a directory."
    )  # fmt: skip


def test_an_adapter_is_initialized_from_its_seed_only(assignment: Assignment) -> None:
    def first(seed: int) -> torch.Tensor:
        torch.rand(seed + 3)
        adapted = session._adapted_model(
            replace(assignment, recipe=replace(assignment.recipe, seed=seed)), torch.device("cpu")
        )
        return next(tensor for name, tensor in adapted.named_parameters() if "lora_A" in name).detach()

    assert torch.equal(first(7), first(7))
    assert not torch.equal(first(7), first(8))


class Unwritable(Checkpoint):
    """A checkpoint for which there is no disk space."""

    def write(self, folder: Path) -> None:
        raise FULL


def test_a_checkpoint_that_cannot_be_written_is_reported_by_the_next_and_leaves_none(tmp_path: Path) -> None:
    writer = CheckpointWriter(max_checkpoints=2)
    reported: list[Path] = []
    checkpoint: Any = Unwritable(None, {}, {}, "")  # type: ignore[arg-type]
    writer.write(checkpoint, tmp_path / "checkpoint-4", None, reported.append)
    with pytest.raises(OSError, match="No space left"):
        writer.wait()
    writer.wait()
    assert reported == []
    broken: Any = Checkpoint(None, {}, {}, "")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        broken.write(tmp_path / "checkpoint-8")
    assert checkpoints_in(tmp_path) == [], "an unfinished one does not count"


@pytest.mark.long
async def test_a_job_with_nothing_left_to_learn_fails_and_registers_nothing(world: World) -> None:
    long = {"messages": [{"role": "user", "content": "fox " * 20}, {"role": "assistant", "content": "jumps"}]}
    job = await world.job(await world.file(*[long] * 12), max_length=16)
    async with world.working():
        done = await world.until(job, ended)
        await world.nothing_left()
    assert done.error is not None
    assert (done.status, done.error.code) == (JobStatus.FAILED, "training_failed")
    assert "longer than `max_length`" in done.error.message
    assert "12 are skipped: their first 16 tokens contain nothing to learn." in (await world.messages(job))[0]
    await nothing_is_registered(world)


async def test_a_full_disk_ends_the_job_with_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise FULL

    job = await world.job(await world.file(*chats(12)))
    monkeypatch.setattr(TokenFileWriter, "add", full)
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.status, done.error.code) == (JobStatus.FAILED, "insufficient_storage")
    assert "No space left on device" in done.error.message
    assert not [path for path in (world.config.workspace / "tokens").rglob("*") if path.is_file()]
    await nothing_is_registered(world)


async def nothing_is_registered(world: World) -> None:
    async with world.store.tenant(world.tenant.id) as scope:
        assert not (await scope.adapters.list()).items
        assert not (await scope.files.list([Purpose.FINE_TUNE_RESULTS])).items


async def test_a_worker_claims_no_more_of_a_tenants_jobs_than_configured(world: World) -> None:
    jobs = [await world.job("file-1") for _ in range(3)]
    for job in jobs:
        assert await world.worker()._claim(JobStatus.VALIDATING)
        async with world.store.tenant(world.tenant.id, write=True) as scope:
            await scope.job_lease.validated(job.id, "w1", {}, 1)
    taken = [await world.worker(name, max_jobs_per_tenant=2)._claim(JobStatus.QUEUED) for name in ("w1", "w2", "w3")]
    assert [claim is not None for claim in taken] == [True, True, False]
