"""The pidfile of a workspace, by which the supervisor knows that its worker is running."""

import os
from pathlib import Path

_FILE = "pid"


def write_pidfile(workspace: Path) -> None:
    """Record that this process works in the workspace."""
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    (workspace / _FILE).write_text(str(os.getpid()))


def is_running(workspace: Path, pid: int) -> bool:
    """Return whether the process with this id has written the pidfile."""
    try:
        return (workspace / _FILE).read_text() == str(pid)
    except OSError:
        return False
