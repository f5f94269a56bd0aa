"""Which lines follow each other while a function runs, in chosen files."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Arc = tuple[str, int, int]
"""A file, a line, and the line that was executed before it in the same function; 0 at its start."""


def arcs_of(work: Callable[[], Any], files: tuple[str, ...]) -> set[Arc]:
    """Return the arcs that `work` executes in files whose names end like this. Raise what it raises."""
    found: set[Arc] = set()
    chosen: dict[str, bool] = {}

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in chosen:
            chosen[file] = file.endswith(files)
        if not chosen[file]:
            return None
        last = 0

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return found
