"""Each guard against an attack is removed from a copy of the tree, and the test that proves it must fail then.

pytest -m long tests/guards -k "the name of a guard"
GUARDS_PAGE=1 pytest tests/guards   # also write the results to the documentation
"""

import os
import re
import time
from pathlib import Path

import pytest

from .page import Result, page_of, results_in
from .removal import GUARDS, ROOT, Guard, copy_tree, removed, run_tests

PAGE = ROOT / "docs/guards.md"


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS) >= 100


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_list_matches_the_tree(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.find) == 1, f"{guard.file} must contain the text once"
    assert guard.replace != guard.find
    file, _, test = guard.test.partition("::")
    assert re.search(rf"^(async )?def {re.escape(test.partition('[')[0])}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_the_page_has_all_guards_and_no_result_that_they_do_not_have() -> None:
    if os.environ.get("GUARDS_PAGE"):
        PAGE.write_text(page_of(GUARDS, results_in(PAGE.read_text())))
    page = PAGE.read_text()
    assert page == page_of(GUARDS, results_in(page)), "write it again, with GUARDS_PAGE=1"
    assert all(result.failed for result in results_in(page).values())


def test_the_page_keeps_results_until_a_guard_has_another_test() -> None:
    one, two = (
        Guard(name, "a/b.py", "if x:", "if False:", f"tests/{name}.py::test_it[a: b]") for name in ("one", "two")
    )
    results = {
        "one": Result(one.test, True, 3.2),
        "two": Result("tests/other.py::test_it", True, 1),
        "gone": Result("", True, 1),
    }
    page = page_of([one, two], results)
    assert results_in(page) == {"one": Result(one.test, True, 3)}
    assert "Of 2 guards, 1 were removed at the last time, and the tests of 1 failed." in page
    assert "| `tests/two.py::test_it[a: b]` | not run |" in page
    assert not results_in(page_of([one], {"one": Result(one.test, False, 3)}))["one"].failed


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree."""
    copy = tmp_path_factory.mktemp("tree")
    copy_tree(copy)
    return copy


@pytest.mark.long
@pytest.mark.timeout(900)  # a test that hangs without its guard, also in its teardown, takes over 300 s to end
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_it_its_test_fails(guard: Guard, tree: Path) -> None:
    started = time.monotonic()
    with removed(tree, guard):
        run = run_tests(tree, guard.test)
    # The second: after its time limit, the test hung in its teardown, so the process was ended.
    failed = run.returncode == 1 and bool(re.search(r"\d+ failed", run.stdout) or "Timeout (" in run.stderr)
    if os.environ.get("GUARDS_PAGE"):
        results = results_in(PAGE.read_text()) | {guard.name: Result(guard.test, failed, time.monotonic() - started)}
        PAGE.write_text(page_of(GUARDS, results))
    assert failed, run.stdout[-4000:] + run.stderr[-2000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_copy_passes_with_all_guards(tree: Path) -> None:
    for start in range(0, len(GUARDS), 20):
        run = run_tests(tree, *dict.fromkeys(guard.test for guard in GUARDS[start : start + 20]))
        assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
