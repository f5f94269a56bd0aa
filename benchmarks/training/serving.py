"""The training API on the machine that serves: how soon a step's weights answer, and what training costs others.

`loragate serve --demo --trainer` runs with its defaults. One client of the official SDK takes steps and samples one
token of an unnamed sampler after each, while another tenant trains; measured is the time from the result of
`optim_step` to the sample. Then four clients stream completions with and without a tenant that trains without a pause.

    python -m benchmarks.training.serving             # five minutes
    python -m benchmarks.training.serving --rounds 1  # a quick look
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
import warnings
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import tinker
from rich.console import Console
from rich.table import Table
from tinker import types

from benchmarks.gateway.batches import Latencies, client_of, interactive, quantile, summarize
from benchmarks.lib.product import Product, serving
from benchmarks.lib.report import write

STEPS, ROUNDS, SECONDS = 100, 6, 15.0
LENGTH = 24
TARGETS = {"sampler_p50_ms": 100, "sampler_p99_ms": 250, "inter_token_p99_ratio": 1.2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of completions with and without training")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data", "--demo", "--trainer") as product:
        until_ready(product)
        keys = [tenant["api_key"] for tenant in json.loads((product.data_dir / "demo.json").read_text())["tenants"]]
        with Training(product, keys[1]):
            figures = fresh_weights(product, keys[0])
        figures |= asyncio.run(beside_completions(product, keys, arguments.rounds))
    show(figures)
    print(f"written to {write('training-serving', figures).relative_to(Path.cwd())}")


def until_ready(product: Product) -> None:
    while product.runtime["optional"].get("trainer", "") is not None:
        time.sleep(0.5)


def client(base_url: str, key: str) -> tinker.TrainingClient:
    service = tinker.ServiceClient(base_url=base_url, api_key=f"tml-{key}")
    return service.create_lora_training_client(base_model="loragate-demo", rank=8, seed=1).result()


def datum(seed: int) -> types.Datum:
    tokens = [(seed * 31 + place * 7) % 300 for place in range(LENGTH + 1)]
    inputs = {"target_tokens": tokens[1:], "weights": [1.0] * LENGTH}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


class Training:
    """A tenant that trains until the block ends, a step after the other, in a process of its own as any other client
    is."""

    def __init__(self, product: Product, key: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        begun, self._ended = spawn.Event(), spawn.Event()
        self._steps = spawn.Value("i", 0)
        arguments = (product.base_url, key, begun, self._ended, self._steps)
        self._process = spawn.Process(target=_train, args=arguments)
        self._process.start()
        begun.wait()

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._process.join()

    @property
    def steps(self) -> int:
        return int(self._steps.value)


def _train(base_url: str, key: str, begun: Event, ended: Event, steps: Any) -> None:
    training = client(base_url, key)
    while not ended.is_set():
        training.forward_backward([datum(each) for each in range(8)], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        steps.value += 1
        begun.set()


def fresh_weights(product: Product, key: str) -> dict[str, Any]:
    """Return the milliseconds from the result of optim_step to a token that was sampled with its weights."""
    training, seconds = client(product.base_url, key), []
    prompt = types.ModelInput.from_ints([5, 6, 7])
    for step in range(STEPS):
        training.forward_backward([datum(step)], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        started = time.perf_counter()
        sampler = training.save_weights_and_get_sampling_client().result()
        sampler.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=1)).result()
        seconds.append(time.perf_counter() - started)
    return {
        "sampler_p50_ms": round(1000 * statistics.median(seconds)),
        "sampler_p99_ms": round(1000 * quantile(seconds, 99)),
    }


async def beside_completions(product: Product, keys: list[str], rounds: int) -> dict[str, Any]:
    without, beside, steps = Latencies(), Latencies(), 0
    async with client_of(product, keys[0]) as http:
        await interactive(http, "loragate-demo", Latencies(), 5.0)
        for _ in range(rounds):
            await interactive(http, "loragate-demo", without, SECONDS)
            with await asyncio.to_thread(Training, product, keys[1]) as training:
                await interactive(http, "loragate-demo", beside, SECONDS)
            steps += training.steps
    return summarize(without, beside) | {"training_steps_per_second": round(steps / rounds / SECONDS, 1)}


def show(figures: dict[str, Any]) -> None:
    table = Table("", "measured", "target, at most")
    for name, target in TARGETS.items():
        table.add_row(name, str(figures[name]), str(target))
    Console().print(table)


if __name__ == "__main__":
    main()
