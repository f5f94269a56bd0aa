"""The effect of a fine-tuning job on served requests, and its training speed while requests are served.

Clients stream at a quarter of the engine's capacity: requests start at fixed intervals, independent of earlier ones.
Windows without and with a running job take turns, and ratios are taken between neighbours, so that a drift in the
machine's speed affects both alike.

    python -m benchmarks.finetune.concurrent_serving                          # about six minutes on two idle cores
    python -m benchmarks.finetune.concurrent_serving --rounds 1 --seconds 8   # a quick look
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from rich.console import Console

from benchmarks.finetune.demo_server import DATA_DIR, DemoServer, demo_server
from benchmarks.finetune.style_dataset import training_file
from benchmarks.lib.report import write

SHARE = 0.25  # of the engine's capacity
NEW_TOKENS = 64
PROMPT = "What is the capital of France?"
SATURATING = 16  # concurrent streams
LONG_JOB = {"n_epochs": 50, "batch_size": 4}
TIMEOUT_SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=30, help="duration of a window")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="data directory of the demo's server")
    arguments = parser.parse_args()
    with demo_server(arguments.data_dir) as server:
        figures = measure(server, arguments.rounds, arguments.seconds)
    Console().print(figures)
    print(f"written to {write('finetune_concurrent_serving', figures).relative_to(Path.cwd())}")


def measure(server: DemoServer, rounds: int, seconds: float) -> dict[str, Any]:
    trainer, key = server.client(0), server.demo["tenants"][1]["api_key"]
    base = trainer.models.list().data[0].id
    capacity = asyncio.run(measure_capacity(server, key, base, seconds / 2))
    job = Job(trainer, base)
    windows: list[dict[str, float]] = []
    for _ in range(rounds):
        quiet = asyncio.run(window(server, key, base, capacity, seconds))
        job.resume()
        before, began = job.step(), time.monotonic()
        trained = asyncio.run(window(server, key, base, capacity, seconds))
        concurrent = (job.step() - before) / (time.monotonic() - began)
        alone = job.pace(seconds / 2)
        job.pause()
        windows.append(
            {
                **{f"{name}_without_ms": value for name, value in quiet.items()},
                **{f"{name}_with_ms": value for name, value in trained.items()},
                "steps_per_second_with": concurrent,
                "steps_per_second_alone": alone,
            }
        )
    job.end()
    ratios = [each["p99_with_ms"] / each["p99_without_ms"] for each in windows]
    return {
        "capacity_tokens_per_second": capacity,
        "served_share": SHARE,
        "p99_quotient": statistics.median(ratios),
        "p99_quotients": ratios,
        "windows": windows,
    }


class Job:
    """A long fine-tuning job, paused at first."""

    def __init__(self, client: OpenAI, base: str) -> None:
        self._jobs = client.fine_tuning.jobs
        for earlier in self._jobs.list():  # of an interrupted run
            if earlier.status not in ("succeeded", "failed", "cancelled"):
                self._jobs.cancel(earlier.id)
        file = client.files.create(file=("ledger.jsonl", training_file()), purpose="fine-tune")
        method: Any = {"type": "supervised", "supervised": {"hyperparameters": LONG_JOB}}
        self._id = self._jobs.create(model=base, training_file=file.id, method=method, seed=1).id
        self._jobs.pause(self._id)
        self._wait_until(lambda: self._jobs.retrieve(self._id).status == "paused")

    def step(self) -> int:
        progress: Any = getattr(self._jobs.retrieve(self._id), "progress", None)
        return int(progress["step"]) if progress else 0

    def pace(self, seconds: float) -> float:
        """Return the steps per second without served requests."""
        time.sleep(2)  # until the trainer has noticed that serving is idle
        before, began = self.step(), time.monotonic()
        time.sleep(seconds)
        return (self.step() - before) / (time.monotonic() - began)

    def resume(self) -> None:
        """Resume, and wait for the next step."""
        before = self.step()
        self._jobs.resume(self._id)
        self._wait_until(lambda: self.step() > before)

    def pause(self) -> None:
        self._jobs.pause(self._id)
        self._wait_until(lambda: self._jobs.retrieve(self._id).status == "paused")

    def end(self) -> None:
        self._jobs.cancel(self._id)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > TIMEOUT_SECONDS:
                raise SystemExit(f"the job makes no progress: {self._jobs.retrieve(self._id)}")
            time.sleep(0.25)


async def measure_capacity(server: DemoServer, key: str, model: str, seconds: float) -> float:
    """Return the tokens per second of a saturated engine."""
    client = AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key=key, timeout=300)
    ends = time.monotonic() + seconds
    counts = [0] * SATURATING

    async def send_until_end(place: int) -> None:
        while time.monotonic() < ends:
            await gaps(client, model)
            counts[place] += NEW_TOKENS

    async with client:
        began = time.monotonic()
        await asyncio.gather(*(send_until_end(place) for place in range(SATURATING)))
        return sum(counts) / (time.monotonic() - began)


async def window(server: DemoServer, key: str, model: str, capacity: float, seconds: float) -> dict[str, float]:
    """Return percentiles of the milliseconds between tokens, while requests start at fixed intervals."""
    client = AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key=key, timeout=300)
    between = NEW_TOKENS / (SHARE * capacity)
    async with client, asyncio.TaskGroup() as group:
        tasks = []
        began = time.monotonic()
        for place in range(int(seconds / between)):
            await asyncio.sleep(max(0.0, began + place * between - time.monotonic()))
            tasks.append(group.create_task(gaps(client, model)))
    found = sorted(1000 * gap for task in tasks for gap in task.result())
    return {"p50": percentile(found, 0.5), "p90": percentile(found, 0.9), "p99": percentile(found, 0.99)}


async def gaps(client: AsyncOpenAI, model: str) -> list[float]:
    """Return the seconds between the tokens of one response."""
    extra = {"ignore_eos": True}
    stream = await client.completions.create(
        model=model, prompt=PROMPT, max_tokens=NEW_TOKENS, stream=True, extra_body=extra
    )
    times = [time.monotonic() async for chunk in stream if chunk.choices and chunk.choices[0].text]
    return [after - before for before, after in pairwise(times)]


def percentile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
