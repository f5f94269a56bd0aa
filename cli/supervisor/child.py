"""One supervised process: started, started again when it dies, and stopped when told."""

import asyncio
import time
from collections.abc import Callable

from loragate.cli.refusal import BAD_SETTING, Refusal
from loragate.cli.supervisor.backoff import Backoff
from loragate.cli.supervisor.program import Program, describe, kill, spawn
from loragate.cli.supervisor.waiting import first


class Child:
    """Keeps one program running. `on_start` is called after each start, `say` with each event in words."""

    def __init__(
        self,
        program: Program,
        *,
        on_start: Callable[[], None],
        say: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self.pid: int | None = None
        self.proven = False  # it has worked: from now on a refusal to start is a passing trouble
        self._program = program
        self._on_start = on_start
        self._say = say
        self._backoff = backoff or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Returns once stopped. Raises Refusal when the program refuses its settings before it ever worked."""
        while not self._stopping.is_set():
            started = time.monotonic()
            ending = await self._live()
            if not self._stopping.is_set():
                await self._mourn(ending, time.monotonic() - started)

    async def stop(self, seconds: float, at_once: asyncio.Event) -> None:
        """Asks the process to end; kills it after `seconds`, or when `at_once` is set."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        await first(process.wait(), at_once.wait(), seconds=seconds)
        if process.returncode is None:
            self._say(f"{self._program.name} has not stopped by itself: killed")
            kill(process)
            await process.wait()

    async def _live(self) -> str:
        """One life of the program; returns how it ended."""
        try:
            self._process = await spawn(self._program)
        except OSError as error:  # out of processes or memory: both pass
            return f"cannot be started: {error.strerror}"
        if self._stopping.is_set():
            kill(self._process)
        self.pid = self._process.pid
        self._on_start()
        status = await self._process.wait()
        if status == BAD_SETTING and not self.proven and not self._stopping.is_set():
            raise Refusal(f"the {self._program.name} refused to start; the reason stands above", BAD_SETTING)
        return f"ended with {describe(status)}"

    async def _mourn(self, ending: str, lived: float) -> None:
        delay = self._backoff.delay(lived)
        self._say(f"{self._program.name} {ending}; starting it again {f'in {delay:g} s' if delay else 'now'}")
        await first(self._stopping.wait(), seconds=delay)
