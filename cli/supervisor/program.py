"""Programs of the server, and starting them as processes."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from loragate.cli.errors import CliError


@dataclass(frozen=True)
class Program:
    """A command with its settings as environment variables and its open sockets as descriptors."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    descriptors: tuple[int, ...] = ()


def our_command(*arguments: str) -> tuple[str, ...]:
    """Return a `loragate` command that ends with this process. `-P` keeps the working directory off its import path."""
    return (sys.executable, "-P", "-m", "loragate.cli.main", "--parent", str(os.getpid()), *arguments)


async def spawn(program: Program, stdout: int | None = None) -> asyncio.subprocess.Process:
    """Start the program in a process group of its own, so that Ctrl-C reaches only the supervisor.

    It has no session of its own: with `sched_autogroup_enabled`, Linux divides the cores among sessions first, and a
    low priority would apply only within the program's own session. By default its stdout goes to our stderr, because
    our stdout is for scripts.
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
    """Run the program to its end and return its stdout. It is killed when this call is cancelled.

    Raise CliError when it fails; the program has written the reason to stderr.
    """
    process = await spawn(program, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            kill(process)
            await process.wait()
    if process.returncode != 0:
        raise CliError(f"{program.name} failed ({describe(process.returncode or 0)}); see the message above")
    return output.decode().strip()


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def describe(status: int) -> str:
    """Describe an exit status."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


@dataclass(frozen=True)
class OptionalPart:
    """A program that the server can do without.

    `name` is its key in the runtime file; `is_up` returns whether the process with this id works.
    """

    name: str
    program: Program
    is_up: Callable[[int], Awaitable[bool]]
