"""The process that trains, as its worker sees it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import Failed, TrainerMessage, message_from

BOARDS = "tensorboard"  # a folder in the workspace
_LINE_BYTES = 1 << 20
_PATIENCE_SECONDS = 20.0  # for a last checkpoint
_OUR_SETTINGS = "LORAGATE_"  # secrets among them


class TrainerProcess:
    """A run. `news` ends with a last word, whatever becomes of the process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def messages(self) -> AsyncIterator[TrainerMessage]:
        """What happens, to the end."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield message_from(json.loads(line))
        code = await self._process.wait()
        if code:
            yield _death(code)

    def set_engine_load(self, load: float) -> None:
        """To an engine that is so busy, 0 to 1."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(f"load {load:.3f}\n".encode())

    def stop(self) -> None:
        """It keeps where it is behind its step, and ends."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


@asynccontextmanager
async def training(assignment: Assignment) -> AsyncIterator[TrainerProcess]:
    """Started; with the block it has ended, stopped if it must be, killed if that takes too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the folder we stand in stays off its import path
        "-W",
        "ignore",  # libraries' warnings are for whoever wrote what calls them
        "-m",
        "loragate.finetune.training.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
        env=_environment(assignment),
    )
    assert process.stdin is not None
    trainer = TrainerProcess(process)
    try:
        process.stdin.write(json.dumps(assignment.to_document()).encode() + b"\n")
        yield trainer
    finally:
        trainer.stop()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _environment(assignment: Assignment) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.upper().startswith(_OUR_SETTINGS)}
    kind, _, number = assignment.settings.device.partition(":")
    visible = {"CUDA_VISIBLE_DEVICES": number} if kind == "cpu" or number else {}
    # A run's own folder is removed with its job.
    boards = {"TENSORBOARD_LOGGING_DIR": str(assignment.folder.parents[2] / BOARDS / assignment.name)}
    # Threads that wait for each other sleep: whoever stands back has too little of a processor to spin on it.
    ours["OMP_WAIT_POLICY"] = "PASSIVE"
    # bitsandbytes would load torch's compiler as it is loaded itself: two seconds, for nothing that a run needs.
    ours["TORCHDYNAMO_DISABLE"] = "1"
    return {**boards, **ours, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **visible}


def _death(code: int) -> Failed:
    """By a signal the code is negative."""
    return Failed(
        "trainer_died", f"The training process ended by itself ({'signal' if code < 0 else 'code'} {abs(code)})."
    )
