"""Progress of the training: bars on a terminal, otherwise a line every few seconds. Library output is suppressed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

OnStep = Callable[[int, float], None]

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(console: Console, title: str, steps: int) -> Iterator[OnStep]:
    """Yield a function to call after each step, with the step's number (from 1) and its loss."""
    started = time.monotonic()
    with _bar(console, title, steps) if console.is_terminal else _lines(console, title, steps) as on_step:
        yield on_step
    report(console, f"{title}: done in {time.monotonic() - started:.0f} s")


@contextmanager
def _bar(console: Console, title: str, steps: int) -> Iterator[OnStep]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=steps, loss=float("nan"))
        yield lambda step, loss: bars.update(task, completed=step, loss=loss)


@contextmanager
def _lines(console: Console, title: str, steps: int) -> Iterator[OnStep]:
    report(console, f"{title}: {steps} steps")
    yield _Lines(lambda line: report(console, line), title, steps)


class _Lines:
    """Reports a step if the last line is some seconds old."""

    def __init__(self, report: Callable[[str], None], title: str, steps: int) -> None:
        self._report, self._title, self._steps = report, title, steps
        self._reported_at = time.monotonic()

    def __call__(self, step: int, loss: float) -> None:
        now = time.monotonic()
        if now - self._reported_at >= _SECONDS_BETWEEN_LINES:
            self._reported_at = now
            self._report(f"{self._title}: step {step} of {self._steps}, loss {loss:.3f}")


def report(console: Console, line: str) -> None:
    """Print one line, regardless of the console's width, without interpreting brackets."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress transformers' progress bars and the notices of bitsandbytes, which PEFT imports and the demo does not
    use."""
    from transformers.utils import logging as transformers_logging

    notices = logging.getLogger("bitsandbytes")
    level, bars = notices.level, transformers_logging.is_progress_bar_enabled()
    notices.setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        notices.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()
