"""Whether a worker is at work in a workspace: its process says so, for whoever started it."""

import os
from pathlib import Path

_FILE = "pid"


def write_pidfile(workspace: Path) -> None:
    """This process is at work there from now on."""
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    (workspace / _FILE).write_text(str(os.getpid()))


def is_running(workspace: Path, pid: int) -> bool:
    """The process with this id has said so."""
    try:
        return (workspace / _FILE).read_text() == str(pid)
    except OSError:
        return False
