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
    computes = lambda item: item.path.name.startswith("test_computing")
    config.pluginmanager.register(ForkedWorkers(lambda item: item.path.name, computes))

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
COMPUTING = """
import os
import time
from pathlib import Path

def test_alone():
    running = Path(__file__).parent / "running"
    running.mkdir()  # fails if another one runs
    time.sleep(0.1)
    running.rmdir()

def test_ends_its_process():
    os._exit(7)

def test_alone_afterwards():
    test_alone()
"""
WAITING = """
import time
from pathlib import Path

def test_beside_another():
    Path(__file__).with_suffix(".runs").touch()
    while len(list(Path(__file__).parent.glob("*.runs"))) < 2:
        time.sleep(0.01)

def test_last():
    ...  # before it, this process asks for its next file
"""


def run(folder: Path, files: dict[str, str], *options: str) -> str:
    """Run these files of tests in processes on one processor; return the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-ra", *options, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": ""}
    one_processor = {min(os.sched_getaffinity(0))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, one_processor),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def two_files(folder: Path, *options: str) -> str:
    return run(folder, {"test_one.py": TESTS, "test_two.py": TESTS}, "--workers", "2", *options)


def test_a_test_that_ends_its_process_fails_and_the_others_run(tmp_path: Path) -> None:
    output = two_files(tmp_path)
    assert re.search(r"4 failed, 4 passed, 2 skipped", output)
    assert output.count("the test ended its process, with status 7") >= 2
    assert "Captured stdout call" in output
    assert "what it printed" in output
    assert "unseen" not in output


def test_it_stops_at_the_first_failure(tmp_path: Path) -> None:
    assert re.search(r"stopping after [12] failures", two_files(tmp_path, "-x")), "both processes may fail at once"


def test_no_more_tests_compute_at_once_than_there_are_processors(tmp_path: Path) -> None:
    """Those that wait run beside them, and each process runs until no test is left for it."""
    files = {f"test_computing_{n}.py": COMPUTING for n in range(3)} | {f"test_waits_{n}.py": WAITING for n in range(2)}
    output = run(tmp_path, files, "--workers", "4")
    assert re.search(r"3 failed, 10 passed", output), output
    assert output.count("the test ended its process, with status 7") >= 3
