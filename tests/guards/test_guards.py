"""Each guard against an attack is removed from a copy of the tree, and the test that proves it must fail then.

`guards.toml` lists the guards: a text of one file, its replacement without the guard, and the test.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PARTS = ("adapter_store", "cli", "demo", "engine", "finetune", "gateway", "kernels", "migrations", "panel",
          "peft_format", "prompts", "proto", "tests", "docs", "examples")  # fmt: skip
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt")
_SECONDS = 280


@dataclass(frozen=True)
class Guard:
    """`find` occurs once in `file`; with `replace` in its place, `test` fails."""

    name: str
    file: str
    find: str
    replace: str
    test: str


GUARDS = [Guard(**entry) for entry in tomllib.loads((Path(__file__).parent / "guards.toml").read_text())["guard"]]


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS) >= 40


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_list_matches_the_tree(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.find) == 1, f"{guard.file} must contain the text once"
    file, _, test = guard.test.partition("::")
    assert re.search(rf"def {re.escape(test.partition('[')[0])}\(", (ROOT / file).read_text()), guard.test


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree."""
    copy = tmp_path_factory.mktemp("tree")
    for part in _PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in _FILES:
        shutil.copy(ROOT / file, copy / file)
    return copy


@pytest.mark.long
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_it_its_test_fails(guard: Guard, tree: Path) -> None:
    file = tree / guard.file
    whole = file.read_text()
    file.write_text(whole.replace(guard.find, guard.replace))
    try:
        run = _run(tree, guard.test)
    finally:
        file.write_text(whole)
    assert run.returncode == 1, run.stdout[-4000:] + run.stderr[-2000:]
    assert re.search(r"\d+ failed", run.stdout), run.stdout[-4000:]


@pytest.mark.long
def test_the_copy_passes_with_all_guards(tree: Path) -> None:
    run = _run(tree, *dict.fromkeys(guard.test for guard in GUARDS[:5]))
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]


def _run(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    overlay = str(tree / "tests/guards/overlay")
    environment = os.environ | {"PYTHONPATH": overlay, "LORAGATE_TREE": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_SECONDS)
