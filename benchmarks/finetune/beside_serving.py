"""What those who are served feel of a job in training, and what training gets done beside them.

Others stream at a quarter of what the engine can do: requests come at even times, whether or not the last ones have
ended. Windows without and with a job in training take turns, and quotients are taken between neighbours, so that a
machine whose speed drifts is fair to both.

    python -m benchmarks.finetune.beside_serving                          # some six minutes on two idle cores
    python -m benchmarks.finetune.beside_serving --rounds 1 --seconds 8   # a quick look
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
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
SATURATING = 16  # streams at once
LONG_JOB = {"n_epochs": 50, "batch_size": 4}
PATIENCE_SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of a window")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="where the demo is, or will be trained")
    arguments = parser.parse_args()
    with demo_server(arguments.data_dir) as server:
        figures = measure(server, arguments.rounds, arguments.seconds)
    Console().print(figures)
    print(f"written to {write('finetune_beside_serving', figures).relative_to(Path.cwd())}")


def measure(server: DemoServer, rounds: int, seconds: float) -> dict[str, Any]:
    learner, served = server.client(0), server.demo["tenants"][1]["api_key"]
    base = learner.models.list().data[0].id
    capacity = asyncio.run(saturated(server, served, base, seconds / 2))
    job = Job(learner, base)
    windows: list[dict[str, float]] = []
    for _ in range(rounds):
        quiet = asyncio.run(window(server, served, base, capacity, seconds))
        job.resume()
        before, began = job.step(), time.monotonic()
        trained = asyncio.run(window(server, served, base, capacity, seconds))
        beside = (job.step() - before) / (time.monotonic() - began)
        alone = job.pace(seconds / 2)
        job.pause()
        windows.append(
            {
                **{f"{name}_without_ms": value for name, value in quiet.items()},
                **{f"{name}_with_ms": value for name, value in trained.items()},
                "steps_per_second_beside": beside,
                "steps_per_second_alone": alone,
            }
        )
    job.end()
    quotients = [each["p99_with_ms"] / each["p99_without_ms"] for each in windows]
    return {
        "capacity_tokens_per_second": capacity,
        "served_share": SHARE,
        "p99_quotient": statistics.median(quotients),
        "p99_quotients": quotients,
        "windows": windows,
    }


class Job:
    """A long one, paused to begin with."""

    def __init__(self, client: OpenAI, base: str) -> None:
        self._jobs = client.fine_tuning.jobs
        for left in self._jobs.list():  # by a run that was interrupted
            if left.status not in ("succeeded", "failed", "cancelled"):
                self._jobs.cancel(left.id)
        file = client.files.create(file=("ledger.jsonl", training_file()), purpose="fine-tune")
        method: Any = {"type": "supervised", "supervised": {"hyperparameters": LONG_JOB}}
        self._id = self._jobs.create(model=base, training_file=file.id, method=method, seed=1).id
        self._jobs.pause(self._id)
        self._until(lambda: self._jobs.retrieve(self._id).status == "paused")

    def step(self) -> int:
        progress: Any = getattr(self._jobs.retrieve(self._id), "progress", None)
        return int(progress["step"]) if progress else 0

    def pace(self, seconds: float) -> float:
        """Steps a second, with nobody served."""
        time.sleep(2)  # until training has heard of it
        before, began = self.step(), time.monotonic()
        time.sleep(seconds)
        return (self.step() - before) / (time.monotonic() - began)

    def resume(self) -> None:
        """Returns when it gets on."""
        before = self.step()
        self._jobs.resume(self._id)
        self._until(lambda: self.step() > before)

    def pause(self) -> None:
        self._jobs.pause(self._id)
        self._until(lambda: self._jobs.retrieve(self._id).status == "paused")

    def end(self) -> None:
        self._jobs.cancel(self._id)

    def _until(self, so: Any) -> None:
        began = time.monotonic()
        while not so():
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise SystemExit(f"the job does not get on: {self._jobs.retrieve(self._id)}")
            time.sleep(0.25)


async def saturated(server: DemoServer, key: str, model: str, seconds: float) -> float:
    """Tokens a second, of as many streams as the engine can take at once."""
    client = AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key=key, timeout=300)
    ends = time.monotonic() + seconds
    counts = [0] * SATURATING

    async def keep_asking(place: int) -> None:
        while time.monotonic() < ends:
            await gaps(client, model)
            counts[place] += NEW_TOKENS

    async with client:
        began = time.monotonic()
        await asyncio.gather(*(keep_asking(place) for place in range(SATURATING)))
        return sum(counts) / (time.monotonic() - began)


async def window(server: DemoServer, key: str, model: str, capacity: float, seconds: float) -> dict[str, float]:
    """Milliseconds between tokens, while requests come at their times."""
    client = AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key=key, timeout=300)
    between = NEW_TOKENS / (SHARE * capacity)
    async with client, asyncio.TaskGroup() as group:
        asked = []
        began = time.monotonic()
        for place in range(int(seconds / between)):
            await asyncio.sleep(max(0.0, began + place * between - time.monotonic()))
            asked.append(group.create_task(gaps(client, model)))
    found = sorted(1000 * gap for task in asked for gap in task.result())
    return {"p50": percentile(found, 0.5), "p90": percentile(found, 0.9), "p99": percentile(found, 0.99)}


async def gaps(client: AsyncOpenAI, model: str) -> list[float]:
    """Seconds between the tokens of one answer."""
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
