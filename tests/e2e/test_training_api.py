"""The training API with the official SDK and the demo: the examples, many tenants at once, `kill -9` of each part."""

import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
import torch
from peft import PeftModel
from running_server import ADMIN_KEY, RunningServer, client, ok
from tinker import types
from transformers import AutoModelForCausalLM

from loragate.demo import shipped_assets

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.filterwarnings("ignore::FutureWarning")]

EXAMPLES = Path(__file__).parents[2] / "examples/tinker"
BASE = "loragate-demo"
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("demo"), "--demo", "--trainer")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def keys(server: RunningServer) -> dict[str, str]:
    """The demo's keys by tenant."""
    tenants = json.loads((server.data_dir / "demo.json").read_text())["tenants"]
    return {tenant["name"]: tenant["api_key"] for tenant in tenants}


def sdk(server: RunningServer, key: str) -> tinker.ServiceClient:
    return tinker.ServiceClient(base_url=server.base_url, api_key=f"tml-{key}")


def run_example(server: RunningServer, key: str, name: str, *arguments: str) -> str:
    """Run an example and return what it prints."""
    environment = os.environ | {
        "TINKER_BASE_URL": server.base_url,
        "TINKER_API_KEY": f"tml-{key}",
        "HF_ENDPOINT": f"{server.base_url}/hf",
        "HF_HOME": str(server.data_dir / "hub"),
        "HF_HUB_OFFLINE": "0",
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def datum(seed: int, length: int = 12) -> types.Datum:
    chooser = random.Random(seed)
    tokens = [chooser.randrange(300) for _ in range(length + 1)]
    inputs = {"target_tokens": tokens[1:], "weights": [1.0] * length}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def test_the_examples(server: RunningServer, keys: dict[str, str]) -> None:
    printed = run_example(server, keys["acme"], "supervised.py")
    state, sampler = re.findall(r"tinker://\S+", printed)
    losses = [float(each) for each in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < 0.1 < losses[0]
    assert "PARIS" in run_example(server, keys["acme"], "sample.py", sampler, QUESTION)
    path = "tinker://capitals/sampler_weights/default"
    assert "PARIS" in run_example(server, keys["acme"], "sample.py", path, QUESTION)
    with client(server.base_url, keys["acme"]) as http:  # it is served as any adapter
        body = {"model": "capitals@learned", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        assert ok(http.post("/v1/chat/completions", json=body))["choices"][0]["message"]["content"] == "PARIS"
    assert "weights/resumed" in run_example(server, keys["acme"], "resume.py", state)
    margins = re.findall(r"margin (-?[\d.]+)", run_example(server, keys["acme"], "custom_loss.py"))
    assert float(margins[-1]) > float(margins[0]) + 5


def test_reinforcement_learning_lifts_the_held_out_reward(server: RunningServer, keys: dict[str, str]) -> None:
    before, after = [], []
    for seed in range(3):
        printed = run_example(server, keys["globex"], "reinforce.py", str(seed))
        before.append(float(re.findall(r"before: ([\d.]+)", printed)[0]))
        after.append(float(re.findall(r"after: ([\d.]+)", printed)[0]))
    assert 0.02 <= statistics.median(before) <= 0.25
    assert statistics.median(after) > 0.8


def test_the_trainer_computes_what_the_sampler_did(server: RunningServer, keys: dict[str, str]) -> None:
    """On the base's adapter and after a step; the metric would show a trainer with other numbers than the engine."""
    training = sdk(server, keys["acme"]).create_lora_training_client(base_model=BASE, rank=4, seed=1).result()
    prompt = [5, 6, 7, 8]
    for step in range(2):
        training.forward_backward([datum(step)], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        sampler = training.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=16, temperature=1.0, seed=step)
        (sequence,) = sampler.sample(types.ModelInput.from_ints(prompt), 1, params).result().sequences
        tokens, logprobs = [*prompt, *sequence.tokens], sequence.logprobs
        assert logprobs is not None
        for shift, expected in ((0.0, 0.0), (0.5, 0.5)):
            inputs = {
                "target_tokens": tokens[1:],
                "logprobs": [*[0.0] * 3, *(each - shift for each in logprobs)],
                "advantages": [*[0.0] * 3, *[1.0] * len(logprobs)],
            }
            data = [types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)]
            metrics = training.forward(data, "importance_sampling").result().metrics
            assert metrics["sampler_logprob_difference:mean"] == pytest.approx(expected, abs=1e-4)


def test_chunks_of_one_call_and_many_targets(server: RunningServer, keys: dict[str, str]) -> None:
    """The SDK sends the chunks of a large call at once, the first one last."""
    service = sdk(server, keys["acme"])
    training = service.create_lora_training_client(base_model=BASE, rank=4, seed=1).result()
    data = [datum(each) for each in range(300)]
    result = training.forward(data, "cross_entropy").result()
    assert len(result.loss_fn_outputs) == 300
    alone = training.forward([data[257]], "cross_entropy").result()
    assert alone.loss_fn_outputs[0]["logprobs"].data == result.loss_fn_outputs[257]["logprobs"].data
    targets = types.TensorData(data=[1, 2, 3, 4, 5, 6], dtype="int64", shape=[3, 2])
    weights = types.TensorData(data=[0.5] * 6, dtype="float32", shape=[3, 2])
    both = types.Datum(
        model_input=types.ModelInput.from_ints([7, 8, 9]), loss_fn_inputs={"target_tokens": targets, "weights": weights}
    )
    output = training.forward_backward([both], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
    assert output.shape == [3, 2]


def test_a_download_is_what_peft_reads(server: RunningServer, keys: dict[str, str], tmp_path: Path) -> None:
    service = sdk(server, keys["acme"])
    training = service.create_lora_training_client(base_model=BASE, rank=4, seed=1).result()
    training.forward_backward([datum(1)], "cross_entropy")
    training.optim_step(types.AdamParams(learning_rate=1e-2))
    expected = training.forward([datum(2)], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data
    with httpx.Client(base_url=server.base_url, headers={"x-api-key": f"tml-{keys['acme']}"}, timeout=60) as http:
        run = training.get_info().model_id
        body = {"model_id": run, "seq_id": 4, "path": "files"}
        request = ok(http.post("/api/v1/save_weights_external", json=body))["request_id"]
        ok(http.post("/api/v1/retrieve_future", json={"request_id": request}))
        urls = ok(http.get(f"/api/v1/training_runs/{run}/checkpoints/external_weights/files/external_weights_urls"))[
            "urls"
        ]
    for name, url in urls.items():
        (tmp_path / name).write_bytes(httpx.get(url).raise_for_status().content)
        assert httpx.get(f"{url[:-4]}AAAA").status_code == 404
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(shipped_assets().model_dir), tmp_path)
    tokens, targets = datum(2).model_input.to_ints(), datum(2).loss_fn_inputs["target_tokens"].data
    with torch.inference_mode():
        logprobs = model(input_ids=torch.tensor([tokens])).logits[0].float().log_softmax(-1)
    assert logprobs[torch.arange(len(targets)), torch.tensor(targets)].tolist() == pytest.approx(expected, abs=1e-4)


def test_errors_have_words(server: RunningServer, keys: dict[str, str]) -> None:
    service = sdk(server, keys["acme"])
    with pytest.raises(Exception, match=r"this server trains 'loragate-demo' only"):
        service.create_lora_training_client(base_model="another", rank=4).result()
    training = service.create_lora_training_client(base_model=BASE, rank=4, seed=1).result()
    with pytest.raises(Exception, match="importance_sampling"):
        training.forward_backward([datum(1)], "stable_reinforce").result()  # type: ignore[arg-type]
    with pytest.raises(Exception, match="gradients were discarded"):
        training.optim_step(types.AdamParams()).result()
    path = training.save_state("mine").result().path
    with pytest.raises(Exception, match="does not exist"):
        sdk(server, keys["globex"]).create_sampling_client(model_path=path).result()
    sampler = training.save_weights_and_get_sampling_client().result()
    with pytest.raises(Exception, match="tokens"):
        sampler.sample(types.ModelInput.from_ints([1] * 5000), 1, types.SamplingParams(max_tokens=1)).result()


def steps(service: tinker.ServiceClient, count: int, seed: int) -> str:
    """Train so many steps without waiting for results; return the digest of the weights."""
    training = service.create_lora_training_client(base_model=BASE, rank=4, seed=seed).result()
    results = []
    for step in range(count):
        results.append(training.forward_backward([datum(seed + step), datum(seed + step + 100)], "cross_entropy"))
        results.append(training.optim_step(types.AdamParams(learning_rate=1e-3)))
        if step % 4 == 0:
            results[-1].result()
    for each in results:
        each.result()
    return str(training.save_weights_for_sampler("end").result().path)


def digest_of(server: RunningServer, key: str, path: str) -> str:
    with httpx.Client(base_url=server.base_url, headers={"x-api-key": f"tml-{key}"}, timeout=60) as http:
        run_id = path.removeprefix("tinker://").partition("/")[0]
        found = ok(http.get(f"/api/v1/training_runs/{run_id}/checkpoints"))["checkpoints"]
        adapter, _, version = found[0]["loragate_model"].partition(":")
    with client(server.base_url, key) as http:
        versions: list[dict[str, Any]] = ok(http.get(f"/v1/adapters/{adapter}/versions"))["data"]
    return str(next(each["digest"] for each in versions if each["version"] == int(version)))


def used_tokens(server: RunningServer, key: str) -> int:
    with client(server.base_url, key) as http:
        return sum(int(each.get("training_tokens", 0)) for each in ok(http.get("/v1/usage"))["data"])


def test_interleaved_tenants_get_what_each_gets_alone(server: RunningServer, keys: dict[str, str]) -> None:
    names = ["acme", "globex"] * 4
    alone = [digest_of(server, keys["acme"], steps(sdk(server, keys["acme"]), 6, seed)) for seed in range(8)]
    found: dict[int, str] = {}

    def train(seed: int) -> None:
        key = keys[names[seed]]
        found[seed] = digest_of(server, key, steps(sdk(server, key), 6, seed))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(8)] == alone


def test_killed_parts_change_nothing(server: RunningServer, keys: dict[str, str]) -> None:
    """Of trainer, gateway and engine, each is killed twice while two tenants train and sample."""
    count = 60
    expected = digest_of(server, keys["acme"], steps(sdk(server, keys["acme"]), count, 5))
    before = {name: used_tokens(server, keys[name]) for name in ("acme", "globex")}
    found: dict[str, str] = {}

    def train(name: str) -> None:
        found[name] = digest_of(server, keys[name], steps(sdk(server, keys[name]), count, 5))

    threads = [threading.Thread(target=train, args=(name,)) for name in before]
    for thread in threads:
        thread.start()
    for part in ("trainer", "gateway", "engine", "trainer", "gateway", "trainer"):
        time.sleep(4)
        pids = server.runtime["pids"]
        pid = pids[part][0] if part == "gateway" else pids[part]
        if pid is not None and any(thread.is_alive() for thread in threads):
            os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert found == {"acme": expected, "globex": expected}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        counted = {name: used_tokens(server, keys[name]) - before[name] for name in before}
        if all(counted.values()):
            break
        time.sleep(1)
    assert counted == dict.fromkeys(before, count * 2 * 12)


def polls(server: RunningServer) -> float:
    """Return how many polls for futures have been answered."""
    with client(server.base_url, ADMIN_KEY) as http:
        page = http.get("/metrics").raise_for_status().text
    counted = r'^loragate_http_requests_total\{[^}]*route="/api/v1/retrieve_future"[^}]*\} ([\d.e+]+)$'
    return sum(map(float, re.findall(counted, page, re.MULTILINE)))


def test_polls_are_held_while_the_trainer_restarts(server: RunningServer, keys: dict[str, str]) -> None:
    """200 futures wait for 30 seconds in which the trainer is killed whenever it starts."""
    trainings = [
        sdk(server, keys[name]).create_lora_training_client(base_model=BASE, rank=4, seed=1).result()
        for name in ("acme", "globex") * 2
    ]
    killed, results = 0, []
    os.kill(server.runtime["pids"]["trainer"], signal.SIGKILL)
    for step in range(25):
        for training in trainings:
            results.append(training.forward_backward([datum(step)], "cross_entropy"))
            results.append(training.optim_step(types.AdamParams(learning_rate=1e-4)))
    before, began = polls(server), time.monotonic()
    while time.monotonic() < began + 30:
        pid = server.runtime["pids"]["trainer"]
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.2)
    answered, seconds = polls(server) - before, time.monotonic() - began
    assert killed > 0
    assert answered <= 5 * seconds
    for each in results:
        each.result()
    assert polls(server) - before >= len(results)
