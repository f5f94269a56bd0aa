"""Time to first token and between tokens of interactive requests, with and without a full lane of batches.

`loragate serve` runs with its defaults on the machine that runs this program, too. Four clients stream completions, one
after the other, with pauses between them. In each round they do so for a while without batches, and for as long while a
tenant's batch fills the lane. Percentiles are over all rounds, and their ratios are to be 1.1 at most. In the end the
batch is alone, for the tokens per second that it gets then.

    python -m benchmarks.gateway.batches              # six rounds, seven minutes
    python -m benchmarks.gateway.batches --rounds 1   # a quick look
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.neighbours import build
from benchmarks.lib.product import ADMIN_KEY, Product, serving
from benchmarks.lib.report import write

CLIENTS, PROMPT, NEW = 4, 64, 32
LINES, LINE_PROMPT, LINE_NEW = 5000, 64, 128
SECONDS, PAUSE = 30.0, (0.05, 0.4)
TARGET = 1.1


@dataclass
class Latencies:
    """Seconds to the first token of each request, and between two tokens."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each case")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = build(Path(folder))
        settings = {"LORAGATE_ADMIN_KEY": ADMIN_KEY, "LORAGATE_ENGINE__DEVICE": "cpu"}
        with serving(Path(folder) / "data", "--model", str(base), settings=settings) as product:
            figures = asyncio.run(measure(product, arguments.rounds, arguments.seconds))
    show(figures)
    print(f"written to {write('batches', figures).relative_to(Path.cwd())}")


async def measure(product: Product, rounds: int, seconds: float) -> dict[str, Any]:
    without, beside = Latencies(), Latencies()
    tokens = [0.0, 0.0]  # of batches, and the time in which they were computed
    guest, batcher = product.add_tenant("guest"), product.add_tenant("batcher")
    async with client_of(product, guest) as guests, client_of(product, batcher) as batches:
        model = (await guests.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
        await interactive(guests, model, Latencies(), 5.0)
        for _ in range(rounds):
            await interactive(guests, model, without, seconds)
            batch = await start_batch(batches, model)
            before = await used(batches, batch)
            await interactive(guests, model, beside, seconds)
            tokens[0] += await used(batches, batch) - before
            tokens[1] += seconds
            await end_batch(batches, batch)
        batch = await start_batch(batches, model)
        await asyncio.sleep(11)  # until the engine counts as quiet
        before = await used(batches, batch)
        await asyncio.sleep(seconds)
        alone = (await used(batches, batch) - before) / seconds
        await end_batch(batches, batch)
    return summarize(without, beside) | {
        "batch_tokens_per_second_beside": round(tokens[0] / tokens[1], 1),
        "batch_tokens_per_second_alone": round(alone, 1),
    }


def client_of(product: Product, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=product.base_url, headers={"authorization": f"Bearer {key}"}, timeout=120)


async def interactive(client: httpx.AsyncClient, model: str, latencies: Latencies, seconds: float) -> None:
    """Let clients stream completions for so long."""
    ends = time.perf_counter() + seconds

    async def requests(rng: random.Random) -> None:
        while time.perf_counter() < ends:
            await stream(client, model, words(rng, PROMPT), latencies)
            await asyncio.sleep(rng.uniform(*PAUSE))

    await asyncio.gather(*(requests(random.Random(number)) for number in range(CLIENTS)))


async def stream(client: httpx.AsyncClient, model: str, prompt: str, latencies: Latencies) -> None:
    body = {"model": model, "prompt": prompt, "max_tokens": NEW, "ignore_eos": True, "stream": True}
    before = time.perf_counter()
    first = True
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter()
            (latencies.first if first else latencies.between).append(now - before)
            before, first = now, False


async def start_batch(client: httpx.AsyncClient, model: str) -> str:
    """Create a batch that fills the lane, and return its id once its lines are run."""
    rng = random.Random(7)
    bodies = (
        {"model": model, "prompt": words(rng, LINE_PROMPT), "max_tokens": LINE_NEW, "ignore_eos": True}
        for _ in range(LINES)
    )
    lines = [
        json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": "/v1/completions", "body": body})
        for number, body in enumerate(bodies)
    ]
    content = {"file": ("requests.jsonl", "\n".join(lines).encode())}
    file = (await client.post("/v1/files", data={"purpose": "batch"}, files=content)).raise_for_status().json()["id"]
    wanted = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
    batch = (await client.post("/v1/batches", json=wanted)).raise_for_status().json()
    while batch["status"] != "in_progress":
        await asyncio.sleep(0.2)
        batch = (await client.get(f"/v1/batches/{batch['id']}")).raise_for_status().json()
    await asyncio.sleep(2.0)  # until its lines are in the engine
    return str(batch["id"])


async def used(client: httpx.AsyncClient, batch: str) -> float:
    """Return the tokens of the batch's results."""
    found = (await client.get(f"/v1/batches/{batch}")).raise_for_status().json()
    return float(found["usage"]["output_tokens"])


async def end_batch(client: httpx.AsyncClient, batch: str) -> None:
    found = (await client.post(f"/v1/batches/{batch}/cancel")).raise_for_status().json()
    while found["status"] != "cancelled":
        await asyncio.sleep(0.2)
        found = (await client.get(f"/v1/batches/{batch}")).raise_for_status().json()


def words(rng: random.Random, count: int) -> str:
    return " ".join(f"w{rng.randrange(1, 2000)}" for _ in range(count))


def summarize(without: Latencies, beside: Latencies) -> dict[str, Any]:
    figures: dict[str, Any] = {"requests": [len(without.first), len(beside.first)]}
    for name, alone, together in (
        ("ttft", without.first, beside.first),
        ("inter_token", without.between, beside.between),
    ):
        for percent in (50, 99):
            one, other = quantile(alone, percent), quantile(together, percent)
            figures[f"{name}_p{percent}_ms"] = [round(1000 * one, 1), round(1000 * other, 1)]
            figures[f"{name}_p{percent}_ratio"] = round(other / one, 3)
    return figures


def quantile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def show(figures: dict[str, Any]) -> None:
    table = Table("", "without, ms", "with a full lane, ms", f"ratio (target: {TARGET} at p99)")
    for name in ("ttft_p50", "ttft_p99", "inter_token_p50", "inter_token_p99"):
        one, other = figures[f"{name}_ms"]
        table.add_row(name, str(one), str(other), str(figures[f"{name}_ratio"]))
    Console().print(table)
    beside, alone = figures["batch_tokens_per_second_beside"], figures["batch_tokens_per_second_alone"]
    Console().print(f"batches: {beside} tokens per second beside these requests, {alone} alone")


if __name__ == "__main__":
    main()
