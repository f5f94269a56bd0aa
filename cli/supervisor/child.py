"""One supervised process: started, restarted when it dies, and stopped on request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.supervisor.program import Program, describe, kill, spawn

_POLL_SECONDS = 0.25


@dataclass
class Backoff:
    """Pauses before restarts: none at first, then doubling from `first` to `longest` seconds.

    A process that ran for `stable` seconds starts again without a pause.
    """

    first: float = 0.25
    longest: float = 10.0
    stable: float = 30.0
    _failures: int = 0

    def delay(self, uptime: float) -> float:
        """Return the seconds to wait after the process ran for `uptime` seconds."""
        self._failures = 1 if uptime >= self.stable else self._failures + 1
        if self._failures == 1:
            return 0.0
        return min(self.longest, self.first * 2.0 ** min(self._failures - 2, 32))


class Child:
    """Keeps one program running.

    `on_change` is called when the program has started or has stopped working, `notify` with a description of each
    event. The server continues without a program that is not `essential`, even when it fails to start. `is_up` returns
    whether the process with this id works.
    """

    def __init__(
        self,
        program: Program,
        *,
        on_change: Callable[[], None],
        notify: Callable[[str], None],
        essential: bool = True,
        is_up: Callable[[int], Awaitable[bool]] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.pid: int | None = None
        self.trouble: str | None = "is starting"  # why it does not work
        self.has_worked = False  # from now on, a failure to start is temporary
        self.started = asyncio.Event()  # there has been a process, or it could not be created
        self._program = program
        self._on_change = on_change
        self._notify = notify
        self._essential = essential
        self._is_up = is_up
        self._backoff = backoff or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until stopped. Raise CliError when the program rejects its settings before it has ever worked."""
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                ending = await self._run_process()
            except CliError as error:
                if self._essential:
                    raise
                self.pid = None
                self._set_trouble("failed to start")
                self._notify(f"{error.message}; continuing without it")
                return
            if not self._stopping.is_set():
                await self._wait_before_restart(ending, time.monotonic() - started)

    async def stop(self, seconds: float, immediate: asyncio.Event) -> None:
        """Ask the process to end, and kill it after `seconds` or when `immediate` is set."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        await first_completed(process.wait(), immediate.wait(), seconds=seconds)
        if process.returncode is None:
            self._notify(f"{self._program.name} did not stop in time and was killed")
            kill(process)
            await process.wait()

    async def _run_process(self) -> str:
        """Run one process of the program and return how it ended."""
        try:
            self._process = await spawn(self._program)
        except OSError as error:  # out of processes or memory, which is temporary
            return f"cannot be started: {error.strerror}"
        finally:
            self.started.set()
        if self._stopping.is_set():
            kill(self._process)
        self.pid = self._process.pid
        self._set_trouble(None if self._is_up is None else "is starting")
        looking = asyncio.create_task(self._watch_until_up(self.pid))
        try:
            status = await self._process.wait()
        finally:
            looking.cancel()
        if status == BAD_SETTING and not self.has_worked and not self._stopping.is_set():
            raise CliError(f"the {self._program.name} failed to start; see the message above", BAD_SETTING)
        return f"ended with {describe(status)}"

    async def _watch_until_up(self, pid: int) -> None:
        while self._is_up is not None and self.trouble is not None:
            await asyncio.sleep(_POLL_SECONDS)
            if await self._is_up(pid):
                self.has_worked = True
                self._set_trouble(None)

    def _set_trouble(self, trouble: str | None) -> None:
        self.trouble = trouble
        self._on_change()

    async def _wait_before_restart(self, ending: str, uptime: float) -> None:
        delay = self._backoff.delay(uptime)
        self._set_trouble(ending)
        self._notify(f"{self._program.name} {ending}; restarting it {f'in {delay:g} s' if delay else 'now'}")
        await first_completed(self._stopping.wait(), seconds=delay)


async def first_completed(*waits: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
    """Return when one of the waits ends or the time is up, and cancel the others."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
