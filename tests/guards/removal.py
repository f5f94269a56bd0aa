"""Removes a guard from a copy of the tree and runs its test there.

`guards.toml` lists the guards: a text of one file, its replacement without the guard, and a test that must fail then.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("adapter_store", "cli", "demo", "engine", "finetune", "gateway", "kernels", "migrations", "panel",
          "peft_format", "prompts", "proto", "tests", "trainer", "docs", "examples")  # fmt: skip
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt")
_TEST_SECONDS = 120  # a test that hangs without its guard has failed


@dataclass(frozen=True)
class Guard:
    """`find` occurs once in `file`; with `replace` in its place, `test` fails."""

    name: str
    file: str
    find: str
    replace: str
    test: str


GUARDS = [Guard(**entry) for entry in tomllib.loads((Path(__file__).parent / "guards.toml").read_text())["guard"]]


def copy_tree(copy: Path) -> None:
    """Copy what the tests need into an empty folder."""
    for part in _PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in _FILES:
        shutil.copy(ROOT / file, copy / file)


@contextmanager
def removed(tree: Path, guard: Guard) -> Iterator[None]:
    """Remove the guard from the copy while the block runs."""
    file = tree / guard.file
    whole = file.read_text()
    file.write_text(whole.replace(guard.find, guard.replace))
    try:
        yield
    finally:
        file.write_text(whole)


def run_tests(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy, with all processes that they start, up to the first failure."""
    overlay = str(tree / "tests/guards/overlay")
    environment = os.environ | {"PYTHONPATH": overlay, "GUARDS_TREE": str(tree), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        f"--timeout={_TEST_SECONDS}",
        *tests,
    ]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
