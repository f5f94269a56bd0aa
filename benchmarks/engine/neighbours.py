"""Tokens per second of the engine on a CPU beside other processes, with and without the governor of its threads.

Model and requests are those of `cpu.py`, without adapters. *Quiet*: nothing else runs. *Busy*: one process computes for
ever. *Niced*: the same at nice 19, in the engine's session (with `sched_autogroup`, niceness does not count between
sessions). *Quota*: the engine runs in a control group with half of the processors; this case needs root, and is left
out without it. The engine chooses its threads itself (*governed*), or `engine.threads` fixes all or one. A turn takes
some seconds, from the moment in which the neighbour begins. The engines take turns in each round, and ratios are taken
within a round, so that a drift in the machine's speed affects all cases alike.

    python -m benchmarks.engine.neighbours              # three rounds, nine minutes
    python -m benchmarks.engine.neighbours --rounds 1   # a quick look
"""

import argparse
import atexit
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.engine.cpu import BASE_CONFIG, PROMPT, REQUESTS, build
from benchmarks.lib.report import write
from loragate.engine.local import LocalEngine

NEW = 440  # more than a turn has time for
SECONDS = 12.0
CORES = len(os.sched_getaffinity(0))
THREADS = {"governed": None, "all threads": CORES, "one thread": 1}
QUIET, BUSY, NICED, QUOTA = "quiet", "busy", "niced", "quota"
GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # of version 1 and 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine in each case")
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # the arguments of an engine's process
    arguments = parser.parse_args()
    if arguments.serve:
        serve(**json.loads(arguments.serve))
        return
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.rounds)
    show(figures)
    print(f"written to {write('neighbours', figures).relative_to(Path.cwd())}")


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    build(directory)
    engines = {name: Engine(directory, threads) for name, threads in THREADS.items()}
    turns: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with quota(CORES / 2) as group:
        if group is not None:
            limited = {name: Engine(directory, threads, group) for name, threads in THREADS.items()}
        for turn in track(range(rounds + 1), description="rounds; the first is a warm-up"):
            for case in (QUIET, BUSY, NICED, QUOTA):
                for name in THREADS:
                    if case == QUOTA and group is None:
                        continue
                    with neighbour(case):
                        result = (limited if case == QUOTA else engines)[name].run(SECONDS if turn else 1.0)
                    if turn:
                        turns[case, name].append(result)
    return summarize(turns)


class Engine:
    """An engine in its own process, in this session, and in `group` if one is given; stopped between its turns."""

    def __init__(self, directory: Path, threads: int | None, group: Path | None = None) -> None:
        arguments = {"directory": str(directory), "threads": threads}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine.neighbours", "--serve", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=None if group is None else partial(enter, group),
        )
        atexit.register(os.killpg, self._child.pid, signal.SIGKILL)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "ready\n"
        os.killpg(self._child.pid, signal.SIGSTOP)

    def run(self, seconds: float) -> dict[str, float]:
        """Generate for so many seconds; return the tokens per second and the threads at the end."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        os.killpg(self._child.pid, signal.SIGCONT)
        print(seconds, file=self._child.stdin, flush=True)
        result: dict[str, float] = json.loads(self._child.stdout.readline())
        os.killpg(self._child.pid, signal.SIGSTOP)
        return result


def serve(directory: str, threads: int | None) -> None:
    """Run an engine: read a number of seconds from each line, generate for so long, and write the result."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may write to standard output
    home = Path(directory)
    engine = LocalEngine(home / "base", home / "cache", {}, threads=threads, max_batch_tokens=1024, max_step_ms=None)
    prompts = torch.randint(3, BASE_CONFIG.vocab_size, (REQUESTS, PROMPT), generator=torch.Generator().manual_seed(1))
    print("ready", file=results, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        requests = [engine.submit(prompt, max_tokens=NEW) for prompt in prompts.tolist()]
        time.sleep(float(line))
        tokens = sum(len(engine.tokens(request)) for request in requests)
        rate = tokens / (time.perf_counter() - began)
        for request in requests:
            engine.abort(request)
            engine.result(request)
        result = {"tokens_per_second": rate, "threads": engine.core.governor.threads}
        print(json.dumps(result), file=results, flush=True)


@contextmanager
def neighbour(case: str) -> Iterator[None]:
    """Run the neighbour of a case."""
    if case not in (BUSY, NICED):
        yield
        return
    nice = partial(os.nice, 19) if case == NICED else None
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=nice)
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


@contextmanager
def quota(processors: float) -> Iterator[Path | None]:
    """Create a control group with a quota; None where that is not possible."""
    period = 100_000
    for root in GROUPS:
        group = root / f"loragate-benchmark-{os.getpid()}"
        try:
            group.mkdir()
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{int(processors * period)} {period}")
            else:
                (group / "cpu.cfs_quota_us").write_text(str(int(processors * period)))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        atexit.register(remove, group)  # runs after the engines in it were killed
        yield group
        return
    yield None


def enter(group: Path) -> None:
    """Move the calling process to a control group."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def remove(group: Path) -> None:
    """Remove a control group as soon as its processes have ended."""
    for _ in range(100):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def summarize(turns: dict[tuple[str, str], list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians, and the ratios of each case to the quiet one with all threads in the same round."""
    rates = {key: [turn["tokens_per_second"] for turn in found] for key, found in turns.items()}
    cases = []
    for case in dict.fromkeys(case for case, _ in rates):
        over = {
            name: statistics.median(a / b for a, b in zip(rates[case, name], rates[QUIET, "all threads"], strict=True))
            for name in THREADS
        }
        cases.append(
            {
                "case": case,
                "tokens_per_second": {name: round(statistics.median(rates[case, name]), 1) for name in THREADS},
                "over_quiet_with_all_threads": {name: round(ratio, 3) for name, ratio in over.items()},
                "threads_at_the_end": {name: [turn["threads"] for turn in turns[case, name]] for name in THREADS},
            }
        )
    return {"requests": REQUESTS, "prompt_tokens": PROMPT, "seconds": SECONDS, "cores": CORES, "cases": cases}


def show(figures: dict[str, Any]) -> None:
    table = Table("beside", *(f"{name}, tok/s" for name in THREADS), "relative to quiet with all threads")
    for case in figures["cases"]:
        rates, ratios = case["tokens_per_second"], case["over_quiet_with_all_threads"]
        table.add_row(case["case"], *map(str, rates.values()), ", ".join(f"{n} {r}" for n, r in ratios.items()))
    Console().print(table)


if __name__ == "__main__":
    main()
