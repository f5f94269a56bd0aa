"""Recipes of the Tinker cookbook that need no download run unchanged, in an environment of their own.

The index has no version of tml-renderers that the cookbook asks for (0.2.1, where it wants 0.4.1), so it is installed
without its dependencies, and those that the recipes import beside it; torch, transformers and the SDK are this
environment's.
"""

import json
import os
import site
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

PACKAGES = (
    "tinker-cookbook==0.6.1",
    "tml-renderers==0.2.1",
    "blobfile",
    "chz",
    "cloudpickle",
    "docstring_parser",
    "antlr4-python3-runtime==4.13.2",
    "latex2sympy2_extended",
    "lxml",
    "math-verify",
    "pillow",
    "pycryptodomex",
    "pylatexenc",
    "pyrage",
    "regex",
    "requests",
    "termcolor",
    "tiktoken",
    "urllib3",
)
COMMON = ("model_name=loragate-demo", "renderer_name=role_colon")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("demo"), "--demo", "--trainer")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the cookbook."""
    folder = tmp_path_factory.mktemp("cookbook")
    venv.create(folder, with_pip=True)
    program = folder / "bin/python"
    subprocess.run([program, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text("\n".join(site.getsitepackages()))
    return program


def run(server: RunningServer, python: Path, recipe: str, *options: str) -> list[dict[str, Any]]:
    """Run a recipe and return the metrics that it logs."""
    (key,) = (
        tenant["api_key"]
        for tenant in json.loads((server.data_dir / "demo.json").read_text())["tenants"]
        if tenant["name"] == "acme"
    )
    environment = os.environ | {
        "TINKER_BASE_URL": server.base_url,
        "TINKER_API_KEY": f"tml-{key}",
        "HF_ENDPOINT": f"{server.base_url}/hf",
        "HF_HOME": str(server.data_dir / "hub"),
        "HF_HUB_OFFLINE": "0",
    }
    log = server.data_dir / "logs" / recipe
    command = [python, "-W", "ignore", "-m", f"tinker_cookbook.{recipe}", *COMMON, f"log_path={log}", *options]
    done = subprocess.run(command, cwd=server.data_dir, env=environment, capture_output=True, text=True, timeout=600)
    assert "Training completed successfully" in done.stdout + done.stderr, done.stderr[-3000:]
    return [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()]


def test_arithmetic(server: RunningServer, python: Path) -> None:
    options = ("env=arithmetic", "loss_fn=importance_sampling", "group_size=4", "groups_per_batch=8", "lora_rank=8")
    metrics = run(server, python, "recipes.math_rl.train", *options, "max_steps=3", "eval_every=0")
    steps = [each for each in metrics if "env/all/reward/total" in each]
    assert len(steps) == 3
    # The logprobs of sampling are those of training, so that ratios begin at one.
    assert all(abs(each["optim/kl_sample_train_v1"]) < 1e-4 for each in steps)


def test_a_game_of_several_turns(server: RunningServer, python: Path) -> None:
    options = ("batch_size=2", "group_size=2", "max_tokens=6", "max_steps=2", "eval_every=0", "save_every=0")
    metrics = run(server, python, "recipes.multiplayer_rl.guess_number.train", *options)
    assert any(each.get("env/all/turns_per_episode", 0) > 1 for each in metrics)


def test_supervised_from_a_file(server: RunningServer, python: Path) -> None:
    data = server.data_dir / "capitals.jsonl"
    pairs = [("France", "PARIS"), ("Italy", "ROME"), ("Japan", "TOKYO"), ("Spain", "MADRID")] * 4
    lines = [
        {"messages": [{"role": "user", "content": f"Capital of {c}?"}, {"role": "assistant", "content": a}]}
        for c, a in pairs
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = (f"dataset={data}", "batch_size=4", "lora_rank=8", "max_length=128", "num_epochs=6", "learning_rate=3e-3")
    metrics = run(server, python, "recipes.chat_sl.train", *options, "eval_every=0", "infrequent_eval_every=0")
    losses = [each["train_mean_nll"] for each in metrics if "train_mean_nll" in each]
    assert losses[-1] < 0.5 * losses[0]
