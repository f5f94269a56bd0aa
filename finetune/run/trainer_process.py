"""The training process, as its worker sees it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import Failed, TrainerMessage, message_from

TENSORBOARD = "tensorboard"  # a folder in the workspace
_LINE_BYTES = 1 << 20
_STOP_SECONDS = 20.0  # time for a last checkpoint
_SETTINGS_PREFIX = "LORAGATE_"  # the prefix of our settings, which include secrets


class TrainerProcess:
    """A running trainer. `messages` always ends with a final message, even if the process dies."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def messages(self) -> AsyncIterator[TrainerMessage]:
        """Yield the trainer's messages up to its end."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield message_from(json.loads(line))
        code = await self._process.wait()
        if code:
            yield _died(code)

    def set_engine_load(self, load: float) -> None:
        """Report the engine's load, 0 to 1, which the trainer gives way to."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(f"load {load:.3f}\n".encode())

    def stop(self) -> None:
        """Ask the trainer to save a checkpoint after its current step and end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


@asynccontextmanager
async def training(assignment: Assignment) -> AsyncIterator[TrainerProcess]:
    """Start the trainer. When the block ends, stop it; kill it if that takes too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # keeps the current folder off its import path
        "-W",
        "ignore",  # libraries' warnings are for the developers of the calling code
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
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _environment(assignment: Assignment) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.upper().startswith(_SETTINGS_PREFIX)}
    kind, _, number = assignment.settings.device.partition(":")
    visible = {"CUDA_VISIBLE_DEVICES": number} if kind == "cpu" or number else {}
    # Not in the run's own folder, which is removed with its job.
    boards = {"TENSORBOARD_LOGGING_DIR": str(assignment.folder.parents[2] / TENSORBOARD / assignment.name)}
    # Waiting threads sleep: at idle priority the trainer gets too little CPU time to spin.
    ours["OMP_WAIT_POLICY"] = "PASSIVE"
    # bitsandbytes would import torch's compiler at its own import: two seconds, for nothing that a run needs.
    ours["TORCHDYNAMO_DISABLE"] = "1"
    return {**boards, **ours, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **visible}


def _died(code: int) -> Failed:
    """Return the final message of a process with this exit code, which is negative for a signal."""
    return Failed("trainer_died", f"The training process died ({'signal' if code < 0 else 'exit code'} {abs(code)}).")
