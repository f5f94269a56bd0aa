"""Records which files a server process executes, for `benchmarks/gateway/request_files.py`.

Python imports this module at start-up, because its folder is on PYTHONPATH. SIGUSR1 starts a recording; SIGUSR2 writes
the files that have executed since to `$REQUEST_FILES_OUT/<pid>.json`.
"""

import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_seen: set[str] = set()
_recording = False


def _profile(frame: FrameType, event: str, argument: Any) -> None:
    if _recording:
        _seen.add(frame.f_code.co_filename)


def _start(signum: int, frame: FrameType | None) -> None:
    global _recording
    _seen.clear()
    _recording = True


def _write(signum: int, frame: FrameType | None) -> None:
    global _recording
    _recording = False
    target = os.path.join(os.environ["REQUEST_FILES_OUT"], f"{os.getpid()}.json")
    with open(target + ".part", "w") as out:
        json.dump(sorted(_seen), out)
    os.replace(target + ".part", target)


if "REQUEST_FILES_OUT" in os.environ:
    signal.signal(signal.SIGUSR1, _start)
    signal.signal(signal.SIGUSR2, _write)
    sys.setprofile(_profile)
    threading.setprofile(_profile)
