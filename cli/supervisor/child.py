"""One supervised process: started, started again when it dies, and stopped when told."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from loragate.cli.refusal import BAD_SETTING, Refusal
from loragate.cli.supervisor.backoff import Backoff
from loragate.cli.supervisor.first_of import first
from loragate.cli.supervisor.program import Program, describe, kill, spawn

_LOOK_SECONDS = 0.25


class Child:
    """Keeps one program running. `on_change` is called when it has started or does not work any more, `say` with each
    event in words.

    Without one that is not `essential` the server goes on, also when it refuses to start. `is_up` tells whether the
    process with this id works.
    """

    def __init__(
        self,
        program: Program,
        *,
        on_change: Callable[[], None],
        say: Callable[[str], None],
        essential: bool = True,
        is_up: Callable[[int], Awaitable[bool]] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.pid: int | None = None
        self.trouble: str | None = "is being started"  # why it does not work
        self.proven = False  # it has worked: from now on a refusal to start is a passing trouble
        self._program = program
        self._on_change = on_change
        self._say = say
        self._essential = essential
        self._is_up = is_up
        self._backoff = backoff or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Returns once stopped. Raises Refusal when the program refuses its settings before it ever worked."""
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                ending = await self._live()
            except Refusal as refusal:
                if self._essential:
                    raise
                self.pid = None
                self._troubled("has refused to start")
                self._say(f"{refusal.message}; going on without it")
                return
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
        self._troubled(None if self._is_up is None else "is being started")
        looking = asyncio.create_task(self._look(self.pid))
        try:
            status = await self._process.wait()
        finally:
            looking.cancel()
        if status == BAD_SETTING and not self.proven and not self._stopping.is_set():
            raise Refusal(f"the {self._program.name} refused to start; the reason stands above", BAD_SETTING)
        return f"ended with {describe(status)}"

    async def _look(self, pid: int) -> None:
        while self._is_up is not None and self.trouble is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            if await self._is_up(pid):
                self.proven = True
                self._troubled(None)

    def _troubled(self, trouble: str | None) -> None:
        self.trouble = trouble
        self._on_change()

    async def _mourn(self, ending: str, lived: float) -> None:
        delay = self._backoff.delay(lived)
        self._troubled(ending)
        self._say(f"{self._program.name} {ending}; starting it again {f'in {delay:g} s' if delay else 'now'}")
        await first(self._stopping.wait(), seconds=delay)
