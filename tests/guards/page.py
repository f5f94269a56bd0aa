"""The page of the documentation with the results of removing guards."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .removal import Guard

_ROW = re.compile(
    r"^\| (?P<name>[^|]+) \| `(?P<file>[^`|]+)` \| `(?P<test>[^`|]+)` \| (?P<result>[^|]+) \|$", re.MULTILINE
)
_NOT_RUN = "not run"


@dataclass(frozen=True)
class Result:
    """Whether the guard's `test` failed without the guard, and how long its run took."""

    test: str
    failed: bool
    seconds: float

    def __str__(self) -> str:
        return f"{'failed' if self.failed else '**passed**'}, {self.seconds:.0f} s"


def results_in(page: str) -> dict[str, Result]:
    """Return the results that a page has, by the guard's name."""
    found = {}
    for row in _ROW.finditer(page):
        if row["result"] != _NOT_RUN:
            outcome, _, seconds = row["result"].partition(", ")
            found[row["name"]] = Result(row["test"], outcome == "failed", float(seconds.removesuffix(" s")))
    return found


def page_of(guards: Iterable[Guard], results: Mapping[str, Result]) -> str:
    """Return the page. A result counts for its guard only while the guard has the same test."""
    known = {guard: results.get(guard.name) for guard in guards}
    current = {guard: result for guard, result in known.items() if result and result.test == guard.test}
    failed = sum(result.failed for result in current.values())
    rows = [f"| {guard.name} | `{guard.file}` | `{guard.test}` | {current.get(guard, _NOT_RUN)} |" for guard in known]
    return "\n".join(
        [
            "# Guards that were removed one by one",
            "",
            "Find out which test notices the loss of a guard against attacks and faults. `make test-long` removes each",
            "of these guards from a copy of the tree, as `tests/guards/guards.toml` says, and its test must fail",
            "then. To write the results to this page: `GUARDS_PAGE=1 make test-long ARGS=tests/guards`.",
            "",
            f"Of {len(known)} guards, {len(current)} were removed at the last time, and the tests of {failed} failed.",
            "",
            "| guard | file | test | without the guard |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )
