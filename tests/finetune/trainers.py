"""The trainers that this process has started."""

import psutil


def trainers(command: str = "loragate.finetune.training.child") -> list[psutil.Process]:
    """Return the running children that have `command` on their command line, without those that ended meanwhile."""
    return [child for child in psutil.Process().children() if command in _command_line(child)]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        found: list[str] = process.cmdline()
    except psutil.NoSuchProcess:  # gone, or dead and not yet waited for
        return []
    return found
