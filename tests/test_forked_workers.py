"""The processes that run the tests: what they report, and what happens when a test ends one."""

import os
import re
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
CONFTEST = """
import os
import pytest
from forked_workers import ForkedWorkers

def pytest_addoption(parser):
    parser.addoption("--workers", type=int, default=0)

def pytest_configure(config):
    config.pluginmanager.register(ForkedWorkers(lambda item: item.path.name))

@pytest.fixture(scope="module")
def process():
    return os.getpid()
"""
TESTS = """
import os
import pytest

def test_passes(process, tmp_path):
    print("unseen")
    assert process == os.getpid() != os.getppid()
    assert tmp_path.parent.name.startswith("worker-")

@pytest.mark.skip(reason="on purpose")
def test_skipped(): ...

def test_fails(process):
    print("what it printed")
    assert process + 1 == process

def test_ends_its_process():
    os._exit(7)

def test_runs_afterwards(process):
    assert process == os.getpid()
"""


def run(folder: Path, *options: str) -> str:
    """Run two files of these tests in two processes; return the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-ra", "--workers", "2", *options]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run([*command, str(folder)], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_a_test_that_ends_its_process_fails_and_the_others_run(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert re.search(r"4 failed, 4 passed, 2 skipped", output)
    assert output.count("the test ended its process, with status 7") >= 2
    assert "Captured stdout call" in output
    assert "what it printed" in output
    assert "unseen" not in output


def test_it_stops_at_the_first_failure(tmp_path: Path) -> None:
    assert re.search(r"stopping after [12] failures", run(tmp_path, "-x")), "both processes may fail at once"
