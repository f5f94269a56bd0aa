"""The training process, as its worker sees it."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from loragate.finetune.config import TrainerPatience
from loragate.finetune.run.trainer_environment import TENSORBOARD, board_folder, trainer_environment
from loragate.finetune.sandbox import Sandbox
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import DIED, FINAL, Alive, Failed, TrainerMessage, message_from

log = logging.getLogger(__name__)

_LINE_BYTES = 1 << 20
_KILL_SECONDS = 10.0  # for the system to end a killed process, which may hang in a driver or a file system
_COMMAND: Sequence[str] = (
    sys.executable,
    "-P",  # keeps the current folder off its import path
    "-W",
    "ignore",  # libraries' warnings are for the developers of the calling code
    "-m",
    "loragate.finetune.training.child",
)


class TrainerProcess:
    """A running trainer. `messages` always ends with a final message, even if the process dies or hangs."""

    def __init__(self, process: asyncio.subprocess.Process, patience: TrainerPatience) -> None:
        self.killed = False  # before its final message
        self._process = process
        self._patience = patience
        self._ended = False  # its final message was read
        self._silent = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def messages(self) -> AsyncIterator[TrainerMessage]:
        """Yield the trainer's messages up to its final one. Kill a trainer that sends nothing for too long."""
        while line := await self._line():
            message = message_from(json.loads(line))
            self._ended = isinstance(message, FINAL)
            if not isinstance(message, Alive):
                yield message
            if self._ended:
                return
        yield await self._death()

    def set_engine_load(self, load: float) -> None:
        """Report the engine's load, 0 to 1, which the trainer gives way to."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(f"load {load:.3f}\n".encode())

    def stop(self, within: float | None = None) -> None:
        """Ask the trainer to save a checkpoint after its current step and end. Kill it if it has not ended `within`
        seconds, by default the patience after an order; of several calls the earliest end holds."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._patience.stop_seconds if within is None else within)
        if self._deadline is None or end < self._deadline.when():
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = loop.call_at(end, self._kill)

    async def wait(self) -> None:
        """Wait until the process has ended; give up on one that survives its end by signal."""
        try:
            async with asyncio.timeout(self._patience.stop_seconds + _KILL_SECONDS):
                await self._process.wait()
        except TimeoutError:
            log.error("the training process %d cannot be killed; it may hang in a driver", self.pid)
        finally:
            if self._deadline is not None:
                self._deadline.cancel()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(self._patience.silence_seconds):
                return await self._process.stdout.readline()
        except TimeoutError:
            self._silent = True
            self._kill()
            return b""

    async def _death(self) -> Failed:
        if self._silent:
            seconds = f"{self._patience.silence_seconds:.0f}"
            return Failed(DIED, f"The training process did not respond for {seconds} seconds and was killed.")
        code = await self._process.wait()
        if code == 0:
            return Failed(DIED, "The training process ended without a message.")
        return Failed(DIED, f"The training process died ({'signal' if code < 0 else 'exit code'} {abs(code)}).")

    def _kill(self) -> None:
        if self._process.returncode is None:
            self.killed = self.killed or not self._ended
            with suppress(ProcessLookupError):
                self._process.kill()


@asynccontextmanager
async def training(
    assignment: Assignment, patience: TrainerPatience, sandbox: Sandbox | None = None
) -> AsyncIterator[TrainerProcess]:
    """Start the trainer, in the sandbox if there is one. When the block ends, stop it; kill it if that takes too long.
    Raise OSError."""
    process = await asyncio.create_subprocess_exec(
        *(_COMMAND if sandbox is None else await asyncio.to_thread(_confined, sandbox, assignment)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
        env=trainer_environment(assignment),
    )
    assert process.stdin is not None
    trainer = TrainerProcess(process, patience)
    try:
        process.stdin.write(json.dumps(assignment.to_document()).encode() + b"\n")
        yield trainer
    finally:
        trainer.stop()
        await trainer.wait()


def _confined(sandbox: Sandbox, assignment: Assignment) -> tuple[str, ...]:
    """Return the command in the sandbox, where it changes its job's folder and reads the model and the data."""
    writable = [assignment.folder.parent]
    if TENSORBOARD in assignment.settings.report_to:
        writable.append(board_folder(assignment))
    for folder in writable:
        folder.mkdir(parents=True, exist_ok=True)
    readable = (assignment.base, assignment.train, assignment.valid)
    return sandbox.command(_COMMAND, [folder for folder in readable if folder is not None], writable)
