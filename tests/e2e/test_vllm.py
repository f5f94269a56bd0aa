"""vLLM behind a real gateway: the attach test at its start, and answers that are our own engine's token for token."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from ports import free_port
from running_server import ADMIN_KEY, RunningServer, clean_environment, client, ok, until, upload
from tiny_models import add_adapter, greedy, make_model
from tokenizers import Tokenizer

from tests.clients.environments import Environments, cache_folder

from .conftest import Tiny, save_tokenizer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parent.parent.parent
PROMPT = [5, 9, 13, 21, 200, 7]
GREEDY = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
SIZES = {"vocab_size": 320, "hidden_size": 128, "intermediate_size": 192}  # vLLM has no kernels for the smallest heads
ONE_THREAD = {"LORAGATE_ENGINE__THREADS": "1", "LORAGATE_ENGINE__KV_CACHE_TOKENS": "8192"}


@pytest.fixture(scope="module")
def vllm_environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings for an engine in vLLM's environment, which finds this checkout's parts."""
    python = Environments(cache_folder(request.config)).python("vllm")
    package = tmp_path_factory.mktemp("package") / "loragate"
    package.mkdir()
    for part in ("peft_format", "kernels", "engine"):
        (package / part).symlink_to(ROOT / part)
    (package / "v1").symlink_to(ROOT / "proto/loragate/v1")
    return {
        "PYTHONPATH": str(package.parent),
        "LORAGATE_ENGINE__BACKEND": "vllm",
        "LORAGATE_ENGINE__VLLM_PYTHON": str(python),
        "LORAGATE_ENGINE__MAX_LORA_RANK": "16",
        **ONE_THREAD,
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    root = tmp_path_factory.mktemp("model")
    model = make_model("llama", **SIZES, initializer_range=0.2)
    model.save_pretrained(root / "tiny-llama")
    save_tokenizer(root / "tiny-llama", 320)
    options: dict[str, dict[str, Any]] = {
        "a": {"r": 4},
        "b": {"r": 16, "use_rslora": True},
        "c": {"r": 8, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"up_proj": 3}},
        "d": {"r": 8, "target_modules": ["q_proj", "down_proj"]},
        "dora": {"r": 4, "use_dora": True},
    }
    adapters = {
        name: add_adapter(model, root / name, seed, **each) for seed, (name, each) in enumerate(options.items())
    }
    return Tiny(model, root / "tiny-llama", adapters)


@pytest.fixture(scope="module")
def server(
    tiny: Tiny, vllm_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    running = RunningServer(
        tmp_path_factory.mktemp("data"),
        "--model",
        str(tiny.base),
        LORAGATE_ENGINE__ADAPTER_SLOTS="3",
        **vllm_environment,
    )
    yield running
    running.stop()


def text_of(tiny: Tiny, adapter: str | None, prompt: list[int], tokens: int = 24) -> str:
    found = greedy(tiny.model, prompt, tokens, adapter and tiny.adapters[adapter])
    return str(Tokenizer.from_file(str(tiny.base / "tokenizer.json")).decode(found))


def test_answers_equal_peft_beside_each_other(server: RunningServer, tiny: Tiny) -> None:
    """Four adapters in three slots, and the base model between them, all at once, several times."""
    with client(server.base_url, server.add_tenant("acme")) as acme:
        for name in "abcd":
            ok(upload(acme, name, tiny.adapters[name]))
        prompts = [[*PROMPT, 30 + i] for i in range(3)]
        cases = [(name, prompt) for name in (None, "a", None, "b", "c", None, "d") for prompt in prompts] * 2

        def ask(case: tuple[str | None, list[int]]) -> str:
            body = {"model": case[0] or "tiny-llama"} | GREEDY | {"prompt": case[1]}
            return str(ok(acme.post("/v1/completions", json=body))["choices"][0]["text"])

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(ask, cases))
        for case, text in zip(cases, found, strict=True):
            assert text == text_of(tiny, *case), case


def test_what_is_not_served_is_refused_by_name(server: RunningServer, tiny: Tiny) -> None:
    with client(server.base_url, server.add_tenant("globex")) as tenant:
        rejected = upload(tenant, "dora", tiny.adapters["dora"])
        assert rejected.status_code == 400
        assert "DoRA" in rejected.text
        embedding = tenant.post("/v1/embeddings", json={"model": "tiny-llama", "input": PROMPT})
        assert embedding.status_code == 400
        assert "vLLM" in embedding.text


def test_sampling_grammars_and_logprobs(server: RunningServer, tiny: Tiny) -> None:
    with client(server.base_url, server.add_tenant("initech")) as tenant:
        ok(upload(tenant, "a", tiny.adapters["a"]))
        asked = {"model": "a", "messages": [{"role": "user", "content": "what is France?"}], "max_tokens": 60}
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}
        formatted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        answer = ok(tenant.post("/v1/chat/completions", json=asked | {"response_format": formatted, "n": 2, "seed": 4}))
        for choice in answer["choices"]:
            assert choice["finish_reason"] == "stop"
            assert set(json.loads(choice["message"]["content"])) == {"n"}
        scored = ok(tenant.post("/v1/completions", json={"model": "a"} | GREEDY | {"logprobs": 2, "echo": True}))
        logprobs = scored["choices"][0]["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(PROMPT) + 24
        assert logprobs["token_logprobs"][0] is None
        assert max(map(len, filter(None, logprobs["top_logprobs"]))) <= 3
        twice = [
            tenant.post("/v1/completions", json={"model": "a"} | GREEDY | {"temperature": 1, "seed": 7}) for _ in "12"
        ]
        assert len({ok(each)["choices"][0]["text"] for each in twice}) == 1


def test_a_deleted_adapter_leaves_and_a_client_that_leaves_ends_its_request(server: RunningServer, tiny: Tiny) -> None:
    with client(server.base_url, server.add_tenant("hooli")) as tenant, server.admin() as admin:
        ok(upload(tenant, "b", tiny.adapters["b"]))
        body = {"model": "b", "stream": True} | GREEDY | {"max_tokens": 400}
        with tenant.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_lines())

        def engine() -> dict[str, Any]:
            [only] = ok(admin.get("/admin/v1/engines"))["data"]
            return dict(only)

        until(lambda: engine()["batch"]["running"] == 0)
        held = engine()["adapter_slots"]["used"]
        assert held > 0
        ok(tenant.delete("/v1/adapters/b"))
        gone = tenant.post("/v1/completions", json={"model": "b"} | GREEDY)
        assert gone.status_code == 404
        until(lambda: engine()["adapter_slots"]["used"] < held)


@pytest.mark.parametrize("slots_left_empty", [0, 1])
def test_without_an_empty_slot_this_build_is_wrong(
    slots_left_empty: int, vllm_environment: dict[str, str], tmp_path: Path
) -> None:
    """The attach test sees it: rows of the base model read the last slot (decision 71)."""
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    environment = os.environ | vllm_environment | {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = [
        vllm_environment["LORAGATE_ENGINE__VLLM_PYTHON"],
        str(script),
        str(tmp_path / "work"),
        str(slots_left_empty),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    wrong = [each for each in report["wrong"] if "the base model" in each]
    assert bool(wrong) == (slots_left_empty == 0), report
    assert len(wrong) == len(report["wrong"])


# Nothing is imported outside of the condition: each process that vLLM starts runs the script again.
CHECK = """
if __name__ == "__main__":
    import asyncio, dataclasses, json, sys
    from pathlib import Path
    from loragate.engine.vllm_backend import tiny_check

    arguments = {"enable_lora": True, "generation_config": "vllm", "disable_log_stats": True, "max_logprobs": -1}
    subjects = 12
    original = tiny_check.tiny_arguments

    def as_many_slots(given, model):
        slots = subjects + int(sys.argv[2])
        return original(given, model) | {"max_loras": slots, "max_cpu_loras": slots}

    tiny_check.tiny_arguments = as_many_slots
    report = asyncio.run(tiny_check.run(arguments, Path(sys.argv[1])))
    print(json.dumps(dataclasses.asdict(report)))
"""


def test_it_is_reached_by_mutual_tls_alone(tiny: Tiny, vllm_environment: dict[str, str], tmp_path: Path) -> None:
    """The engine shows its certificate and asks for one, as our own does."""
    loragate = [sys.executable, "-m", "loragate.cli.main"]
    certs = tmp_path / "certs"
    subprocess.run([*loragate, "certs", str(certs), "--engine", "127.0.0.1"], check=True)
    address, port, grpc_port = f"127.0.0.1:{free_port()}", free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    common = clean_environment() | {"LORAGATE_DATA_DIR": str(tmp_path / "data"), "LORAGATE_ADMIN_KEY": ADMIN_KEY}
    of_engine = vllm_environment | {
        "LORAGATE_ENGINE__LISTEN": address,
        "LORAGATE_TLS_CERT": str(certs / "127.0.0.1.pem"),
        "LORAGATE_TLS_KEY": str(certs / "127.0.0.1.key"),
        "LORAGATE_TLS_CLIENT_CA": str(certs / "ca.pem"),
    }
    of_gateway = {
        "LORAGATE_ENGINE_TARGET": address,
        "LORAGATE_ENGINE_CA": str(certs / "ca.pem"),
        "LORAGATE_ENGINE_CLIENT_CERT": str(certs / "client.pem"),
        "LORAGATE_ENGINE_CLIENT_KEY": str(certs / "client.key"),
    }
    ports = ["--port", str(port), "--grpc-port", str(grpc_port)]
    gateway = subprocess.Popen([*loragate, "gateway", *ports], env=common | of_gateway)
    engine = subprocess.Popen([*loragate, "engine", "--model", str(tiny.base)], env=common | of_engine)
    try:
        until(lambda: _is_ready(url), 600)
        with client(url, ADMIN_KEY) as admin:
            tenant = ok(admin.post("/admin/v1/tenants", json={"name": "acme"}))
            key = ok(admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "test"}))["secret"]
        with client(url, key) as acme:
            ok(upload(acme, "a", tiny.adapters["a"]))
            answer = ok(acme.post("/v1/completions", json={"model": "a"} | GREEDY))
        assert answer["choices"][0]["text"] == text_of(tiny, "a", PROMPT)
        authority = (certs / "ca.pem").read_bytes()
        for credentials in (None, grpc.ssl_channel_credentials(authority)):
            made = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
            with made as channel, pytest.raises(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(5)
    finally:
        for process in (gateway, engine):
            process.terminate()
            process.wait(60)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.HTTPError:
        return False
