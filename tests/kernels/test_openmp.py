"""Which threads compute, and that others do not change them. Each test has its own process, as thread teams belong to a
process.
"""

import subprocess
import sys

import pytest
from skip_for_missing import skip_for_missing

from loragate.kernels.cpu.openmp import find_library

COUNT = """
import os, threading, torch
from loragate.kernels.cpu.openmp import compute_alone, compute_with, end_team
compute_with(2)
def threads(): return len(os.listdir("/proc/self/task"))
def compute(): return (torch.ones(600, 600) @ torch.ones(600, 600)).sum().item()
"""


@pytest.fixture(autouse=True)
def openmp() -> None:
    if find_library() is None:
        skip_for_missing("OpenMP as torch's wheels bring it")


def output_of(script: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", COUNT + script], capture_output=True, text=True, check=True
    ).stdout.split()


def test_a_disbanded_team_ends_and_forms_again() -> None:
    before, working, after, again = output_of(
        "print(threads()); compute(); print(threads()); end_team(); print(threads()); compute(); print(threads())"
    )
    assert int(working) == int(before) + 1
    assert after == before
    assert again == working


def test_computing_alone_affects_one_thread() -> None:
    helper, mine = output_of("""
compute()
seen = []
def help():
    compute_alone()
    compute()
    seen.append(torch.get_num_threads())
helper = threading.Thread(target=help)
helper.start(); helper.join()
print(seen[0], torch.get_num_threads())
""")
    assert (helper, mine) == ("1", "2")


def test_a_thread_keeps_its_number_after_others_set_theirs() -> None:
    """torch takes the process's latest setting when a thread first asks, which must not undo the thread's own."""
    (kept,) = output_of("""
compute()
seen = []
def steps():
    compute_with(2)
    helper = threading.Thread(target=compute_alone)
    helper.start(); helper.join()
    compute()
    seen.append(torch.get_num_threads())
loop = threading.Thread(target=steps)
loop.start(); loop.join()
print(seen[0])
""")
    assert kept == "2"
