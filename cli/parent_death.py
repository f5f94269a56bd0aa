"""Ending a child process when its parent dies, for any reason."""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def exit_when_parent_dies(parent: int) -> None:
    """End this process as soon as `parent`, the process that started it, has exited.

    On Linux the kernel sends SIGKILL, which also ends a hung or stopped child. Elsewhere a thread waits for the end of
    standard input, a pipe whose other end only the parent holds.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)
    else:
        threading.Thread(target=_exit_at_end_of_input, daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)
