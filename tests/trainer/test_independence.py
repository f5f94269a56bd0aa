"""A run's losses, gradients and weights have the same bits in any company, however its data are cut."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thinned import thinned
from training_runs import compute, datum, load_trainer, request, save_model, threads

from loragate.trainer.trainer import AdamParams, Datum, LoraSettings

PARAMS = AdamParams(learning_rate=1e-3, weight_decay=0.01, grad_clip_norm=50.0)
STEPS = 2
LENGTHS = (3, 150, 40, 17)
WIDE = {"hidden_size": 640, "intermediate_size": 1280, "num_hidden_layers": 1}  # sums longer than one block


@dataclass(frozen=True)
class Company:
    """The circumstances in which a run is trained."""

    neighbours: int = 0
    threads: int = 1
    checkpointing: bool = False
    max_step_tokens: int = 4096
    logit_bytes: int = 1 << 27
    requests: int = 1  # among which the run's data are divided


COMPANIES = {
    "neighbours": Company(neighbours=3),
    "two threads": Company(neighbours=1, threads=2),
    "checkpointing": Company(checkpointing=True),
    "steps of one sequence": Company(max_step_tokens=16),
    "small steps and neighbours": Company(neighbours=3, checkpointing=True, max_step_tokens=64),
    "chunks of one piece": Company(neighbours=1, logit_bytes=1),
    "small chunks": Company(neighbours=5, max_step_tokens=320, logit_bytes=100_000),
    "several requests": Company(neighbours=3, requests=3),
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "wide llama": ("llama", WIDE),
    "gpt2": ("gpt2", {}),
    "gemma2": ("gemma2", {}),
    "mixtral": ("mixtral", {}),
    "gpt_oss": ("gpt_oss", {}),
    "phi3": ("phi3", {}),
}


@pytest.mark.parametrize("model", thinned(MODELS, ("wide llama",)))
def test_no_circumstance_shows(model: str, tmp_path: Path) -> None:
    model_type, overrides = MODELS[model]
    _, folder = save_model(tmp_path, model_type, **overrides)
    expected = train(folder, Company())
    assert [name for name, company in COMPANIES.items() if train(folder, company) != expected] == []


def test_another_order_of_data_shows(tmp_path: Path) -> None:
    """Without this, the test above could compare too little."""
    _, folder = save_model(tmp_path, "llama")
    expected = train(folder, Company())
    assert train(folder, Company(), lengths=LENGTHS[::-1]) != expected


def test_tenants_at_random_get_what_they_get_alone(tmp_path: Path) -> None:
    _, folder = save_model(tmp_path, "qwen2")
    tenants = {f"t{i}": LoraSettings(rank=1 + 2 * i, seed=i, train_mlp=i % 3 != 1) for i in range(8)}
    data = {name: [[datum(31 * i + j, 5 + 9 * j) for j in range(3)] for i in range(4)] for name in tenants}
    together = load_trainer(folder)
    for name, settings in tenants.items():
        together.create(name, settings)
    chance = random.Random(5)
    waiting = {name: list(batches) for name, batches in data.items()}
    losses: dict[str, list[float]] = {name: [] for name in tenants}
    while waiting:
        names = chance.sample(sorted(waiting), chance.randint(1, len(waiting)))
        for name, result in zip(names, compute(together, *(request(n, waiting[n].pop(0)) for n in names)), strict=True):
            losses[name].append(result.metrics["loss:sum"])
            if chance.random() < 0.7 or not waiting[name]:
                together.optim_step(name, PARAMS)
        steps = {name: together.has_gradients(name) for name in names}
        for name in names:
            if steps[name]:
                together.optim_step(name, PARAMS)
        waiting = {name: batches for name, batches in waiting.items() if batches}
    for name, settings in tenants.items():
        alone = load_trainer(folder)
        alone.create(name, settings)
        found = []
        for batch in data[name]:
            found.append(compute(alone, request(name, batch))[0].metrics["loss:sum"])
            alone.optim_step(name, PARAMS)
        assert found == losses[name]
        assert alone.state(name) == together.state(name)


def train(folder: Path, company: Company, lengths: Sequence[int] = LENGTHS) -> list[bytes]:
    """Return the bits of a run's logprobs, losses, gradients and weights over some steps."""
    with threads(company.threads):
        trainer = load_trainer(folder, checkpointing=company.checkpointing, max_step_tokens=company.max_step_tokens)
        trainer._base.head.logit_bytes = company.logit_bytes
        trainer.create("run", LoraSettings(rank=5, seed=1))
        for number in range(company.neighbours):
            trainer.create(f"neighbour {number}", LoraSettings(rank=3 + number, seed=2 + number))
        found = []
        for step in range(STEPS):
            own = [datum(10 * step + length, length) for length in lengths]
            parts = [list(part) for part in np.array_split(np.array(own, dtype=object), company.requests)]
            requests = [request("run", part) for part in parts]
            others = [request(f"neighbour {n}", _others(step, n)) for n in range(company.neighbours)]
            middle = len(others) // 2
            results = compute(trainer, *others[:middle], *requests, *others[middle:])[middle:][: len(requests)]
            found += [output["logprobs"].tobytes() for result in results for output in result.outputs]
            found += [trainer.state("run")]
            trainer.optim_step("run", PARAMS)
        return [*found, trainer.state("run")]


def _others(step: int, number: int) -> list[Datum]:
    """Return data of other lengths and losses, with several targets for the first neighbour."""
    return [datum(99 + step + number + i, 9 + 31 * i, targets=3 if number == 0 else 0) for i in range(3)]
