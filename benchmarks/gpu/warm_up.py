"""Compilation of the kernels by several processes at once, into one cache of Triton's.

One process compiles about one kernel per second, and needs minutes of a stage's ten for it. Each process here checks
one kernel in one dtype, on the same GPU.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.gpu import check
from benchmarks.gpu.cases import Setting
from benchmarks.lib.partial_results import PartialResults

_AT_ONCE = 12  # each takes about a gigabyte of the device


def compile_in_parallel(setting: Setting, results: PartialResults) -> None:
    folder = setting.out / "warm"
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as threads:
        took = list(threads.map(partial(_seconds, setting), check.NAMES))
    results.record("seconds_by_kernel", lambda: dict(zip(check.NAMES, took, strict=True)))
    print(f"compiled by {len(took)} processes; their results are in {folder}", flush=True)


def _seconds(setting: Setting, name: str) -> float:
    """Return the seconds of a process that checks one kernel. What it finds is left to the stage `check`."""
    began = time.perf_counter()
    own = ("--stage", "check", "--only", name, "--out", str(setting.out / "warm" / name.replace(" ", "-")))
    flags = [each for each in sys.argv[1:] if each in ("--interpret", "--tiny")]
    subprocess.run([sys.executable, *_FLAGS, "-m", "benchmarks.gpu", *own, *flags], check=False, capture_output=True)
    return round(time.perf_counter() - began, 1)


_FLAGS = ["-S"] if sys.flags.no_site else []
