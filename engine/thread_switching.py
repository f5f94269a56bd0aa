"""How long a thread of Python's keeps others waiting."""

import sys

_SECONDS = 0.0005  # Python's own is ten times that


def switch_soon() -> None:
    """For a process whose main loop must not be held up by what its other threads compute: after each call that lets go
    of the interpreter it may have to wait for so long until it is its turn again."""
    sys.setswitchinterval(_SECONDS)
