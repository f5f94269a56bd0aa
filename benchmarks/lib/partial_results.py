"""What a stage of `benchmarks.gpu` has found so far, on disk as soon as it is there: one that is cut off, or fails
late, has not been for nothing."""

import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Findings:
    """`about` says what stands beside the figures, asked anew for each writing. `free` gives back what a case held."""

    def __init__(self, path: Path, about: Callable[[], Mapping[str, Any]], free: Callable[[], None]) -> None:
        self.figures: dict[str, Any] = {}
        self.failures: dict[str, str] = {}
        self._path, self._about, self._free = path, about, free
        self._began = time.perf_counter()

    def keep(self, name: str, measure: Callable[[], T]) -> T | None:
        """A case and its figure. If it fails, that is told, and the rest goes on."""
        return self._try(name, measure, lambda figure: self.figures.update({name: figure}))

    def extend(self, name: str, case: str, measure: Callable[[], T]) -> T | None:
        """One more of several of the same kind."""
        return self._try(f"{name}, {case}", measure, lambda figure: self.figures.setdefault(name, []).append(figure))

    def run(self, stage: Callable[[], None]) -> None:
        """All of it. What fails outside of a case ends it, and is told too."""
        self._try("the stage itself", stage, lambda _: None)

    def _try(self, name: str, measure: Callable[[], T], put: Callable[[T], None]) -> T | None:
        try:
            figure = measure()
        except Exception as error:
            traceback.print_exc()
            self.failures[name] = f"{type(error).__name__}: {error}"
            return None
        else:
            put(figure)
            return figure
        finally:
            self._free()
            self._write()

    def _write(self) -> None:
        """By rename: whoever is cut off while writing leaves what was there."""
        seconds = round(time.perf_counter() - self._began, 1)
        report = {**self._about(), "seconds": seconds, "failures": self.failures, "figures": self.figures}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(report, indent=2) + "\n")
        part.replace(self._path)
