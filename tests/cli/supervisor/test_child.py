import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from loragate.cli.errors import CliError
from loragate.cli.supervisor.child import Backoff, Child
from loragate.cli.supervisor.program import Program, run_once


def program(code: str) -> Program:
    return Program("part", (sys.executable, "-c", code), dict(os.environ))


class Watched:
    """A child, the events it reports, and its starts."""

    def __init__(self, code: str, **options: Any) -> None:
        self.started: asyncio.Queue[int] = asyncio.Queue()
        self.said: list[str] = []
        self.troubles: list[str | None] = []
        self.child = Child(
            program(code), on_change=self._on_change, notify=self.said.append, backoff=Backoff(first=0.01), **options
        )
        self.at_once = asyncio.Event()
        self.running = asyncio.create_task(self.child.run())

    def _on_change(self) -> None:
        self.troubles.append(self.child.trouble)
        if self.child.trouble is None:
            assert self.child.pid is not None
            self.started.put_nowait(self.child.pid)

    async def stop(self, seconds: float = 30.0) -> None:
        await self.child.stop(seconds, self.at_once)
        await self.running


async def test_a_dead_child_is_restarted_each_time() -> None:
    watched = Watched("import sys; sys.exit(3)")
    pids = {await watched.started.get() for _ in range(4)}
    await watched.stop()
    assert len(pids) == 4
    assert watched.said[0] == "part ended with status 3; restarting it now"
    assert watched.said[1] == "part ended with status 3; restarting it in 0.01 s"


async def test_a_killed_child_is_restarted() -> None:
    watched = Watched("import time; time.sleep(600)")
    first = await watched.started.get()
    os.kill(first, signal.SIGKILL)
    assert await watched.started.get() != first
    await watched.stop()
    assert "signal SIGKILL" in watched.said[0]


async def test_stopping_sends_sigterm_first(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"""
import pathlib, signal, sys
def stop(*_):
    pathlib.Path({str(mark)!r}).write_text("asked")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path({str(mark)!r}).write_text("up")
signal.pause()
"""
    watched = Watched(code)
    await until(lambda: mark.exists() and mark.read_text() == "up")
    await watched.stop()
    assert mark.read_text() == "asked"
    assert watched.said == []


STUBBORN = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("up").touch()
while True: signal.pause()
"""


async def test_a_stubborn_child_is_killed_after_its_grace_period() -> None:
    watched = Watched(STUBBORN)
    await until(Path("up").exists)
    await watched.stop(seconds=0.05)
    assert watched.said == ["part did not stop in time and was killed"]


async def test_a_stubborn_child_is_killed_at_once_on_request() -> None:
    watched = Watched(STUBBORN)
    await until(Path("up").exists)
    stopping = asyncio.create_task(watched.stop(seconds=3600))
    watched.at_once.set()
    await stopping


async def test_a_child_stopped_while_it_waits_for_a_restart_stays_down() -> None:
    watched = Watched("raise SystemExit(1)")
    watched.child._backoff = Backoff(first=3600, longest=3600)
    for _ in range(2):
        await watched.started.get()
    await until(lambda: len(watched.said) == 2)
    await watched.stop()
    assert watched.started.empty()


async def test_a_child_that_rejects_its_settings_is_not_restarted() -> None:
    watched = Watched("raise SystemExit(2)")
    with pytest.raises(CliError, match="the part failed to start") as caught:
        await watched.running
    assert caught.value.status == 2
    assert watched.started.qsize() == 1


async def test_a_child_that_has_worked_before_may_fail_to_start_for_a_while() -> None:
    watched = Watched("raise SystemExit(2)")
    watched.child.has_worked = True
    for _ in range(3):
        await watched.started.get()
    await watched.stop()


async def test_an_optional_part_may_fail_to_start() -> None:
    watched = Watched("raise SystemExit(2)", essential=False)
    await watched.running
    assert watched.said == ["the part failed to start; see the message above; continuing without it"]
    assert (watched.child.pid, watched.child.trouble) == (None, "failed to start")
    await watched.stop()


async def test_readiness_and_its_loss_are_reported() -> None:
    async def is_up(pid: int) -> bool:
        return Path("up").exists()

    watched = Watched("import signal; signal.pause()", is_up=is_up)
    await until(lambda: watched.child.pid is not None)
    assert watched.child.trouble == "is starting"
    Path("up").touch()
    first = await watched.started.get()
    Path("up").unlink()
    os.kill(first, signal.SIGKILL)
    await until(lambda: watched.child.pid != first)
    assert watched.started.empty()
    Path("up").touch()
    await watched.started.get()
    await watched.stop()
    assert watched.troubles[1:4] == [None, "ended with signal SIGKILL", "is starting"]


async def test_children_have_their_own_process_group_in_our_session() -> None:
    watched = Watched("import signal; signal.pause()")
    pid = await watched.started.get()
    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == os.getsid(0)
    await watched.stop()


async def test_run_once_returns_the_output() -> None:
    assert await run_once(program("print('  the model  ')")) == "the model"


async def test_run_once_fails_with_the_reason() -> None:
    with pytest.raises(CliError, match="part failed \\(status 7\\)"):
        await run_once(program("raise SystemExit(7)"))


async def test_a_cancelled_run_once_leaves_no_process() -> None:
    code = "import os, pathlib, signal; pathlib.Path('pid').write_text(str(os.getpid())); signal.pause()"
    task = asyncio.create_task(run_once(program(code)))
    await until(lambda: Path("pid").exists() and Path("pid").read_text() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)


async def until(holds: object) -> None:
    assert callable(holds)
    while not holds():
        await asyncio.sleep(0.01)
