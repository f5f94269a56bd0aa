"""Starting one of our own commands as a process."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from loragate.cli.refusal import Refusal


@dataclass(frozen=True)
class Program:
    """A command with all it needs: settings by environment, open sockets by descriptor."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    descriptors: tuple[int, ...] = ()


def our_command(*arguments: str) -> tuple[str, ...]:
    """A `loragate` command that ends with this process; `-P` keeps the folder we stand in off its import path."""
    return (sys.executable, "-P", "-m", "loragate.cli.main", "--parent", str(os.getpid()), *arguments)


async def spawn(program: Program, stdout: int | None = None) -> asyncio.subprocess.Process:
    """Starts the program in a process group of its own, so that Ctrl-C reaches only the supervisor.

    Not in a session of its own: Linux may share the cores out among sessions first (`sched_autogroup_enabled`), and
    a program that stands back behind the others would do so only within its own. What it prints goes to our stderr
    unless told otherwise: our stdout is for what scripts read.
    """
    return await asyncio.create_subprocess_exec(
        *program.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=sys.stderr.fileno() if stdout is None else stdout,
        env=dict(program.environment),
        pass_fds=program.descriptors,
        process_group=0,
    )


async def run_once(program: Program) -> str:
    """Runs the program to its end and returns what it wrote to stdout; a cancelled one is killed.

    Raises Refusal when it fails; it has said why on stderr.
    """
    process = await spawn(program, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            kill(process)
            await process.wait()
    if process.returncode != 0:
        raise Refusal(f"{program.name} failed ({describe(process.returncode or 0)}); the reason stands above")
    return output.decode().strip()


def kill(process: asyncio.subprocess.Process) -> None:
    """Ends the process and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def describe(status: int) -> str:
    """An exit status in words."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
