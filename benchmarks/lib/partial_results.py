"""The results of a stage of `benchmarks.gpu`, written after each case, so that a stage that fails late keeps them."""

import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class PartialResults:
    """Figures and failures by case, written to `path` after each case.

    `about` returns further fields of the report; it is called for each write. `free` releases the memory of a case.
    Cases whose names do not contain `only` are left out.
    """

    def __init__(
        self, path: Path, about: Callable[[], Mapping[str, Any]], free: Callable[[], None], only: str = ""
    ) -> None:
        self._only = only
        self.figures: dict[str, Any] = {}
        self.failures: dict[str, str] = {}
        self._path, self._about, self._free = path, about, free
        self._began = time.perf_counter()

    def record(self, name: str, measure: Callable[[], T]) -> T | None:
        """Measure a case and record its figure. Record a failure and do not raise it, so that other cases run."""
        if self._only not in name:
            return None
        return self._try(name, measure, lambda figure: self.figures.update({name: figure}))

    def extend(self, name: str, case: str, measure: Callable[[], T]) -> T | None:
        """Measure one of several cases and append its figure to the list `name`."""
        if self._only not in f"{name}, {case}":
            return None
        return self._try(f"{name}, {case}", measure, lambda figure: self.figures.setdefault(name, []).append(figure))

    def run(self, stage: Callable[[], None]) -> None:
        """Run the stage. A failure outside of a case ends it and is recorded too."""
        self._try("the stage itself", stage, lambda _: None)

    def _try(self, name: str, measure: Callable[[], T], store: Callable[[T], None]) -> T | None:
        try:
            figure = measure()
        except Exception as error:
            traceback.print_exc()
            self.failures[name] = f"{type(error).__name__}: {error}"
            return None
        else:
            store(figure)
            return figure
        finally:
            self._free()
            self._write()

    def _write(self) -> None:
        """Write by rename, so that an interrupted write leaves the earlier file."""
        seconds = round(time.perf_counter() - self._began, 1)
        report = {**self._about(), "seconds": seconds, "failures": self.failures, "figures": self.figures}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(report, indent=2) + "\n")
        part.replace(self._path)
