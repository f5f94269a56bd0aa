"""A child's tie to the process that started it: when that one dies, however, so does the child."""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ends this process as soon as `parent`, which started it, is gone.

    On Linux the kernel does it, so that a hung or stopped child goes too. Elsewhere a thread waits for the end of
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
