"""Through the whole stack: HTTP, store, engine. The oracle is PEFT on transformers."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from running_server import ok, until, upload
from tiny_models import greedy

PROMPT = [5, 9, 13, 21, 200, 7]
GREEDY = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def text_of(tiny: Any, adapter: str | None, new_tokens: int = 12) -> str:
    from tokenizers import Tokenizer

    tokens = greedy(tiny.model, PROMPT, new_tokens, adapter and tiny.adapters[adapter])
    return Tokenizer.from_file(str(tiny.base / "tokenizer.json")).decode(tokens)


def complete(tenant: httpx.Client, model: str, **fields: Any) -> str:
    return str(ok(tenant.post("/v1/completions", json={"model": model} | GREEDY | fields))["choices"][0]["text"])


def streamed(tenant: httpx.Client, model: str, **fields: Any) -> str:
    text = ""
    body = {"model": model, "stream": True} | GREEDY | fields
    with tenant.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        text += "".join(choice["text"] for choice in json.loads(event)["choices"])
    return text


def test_thirty_two_concurrent_requests_equal_peft(tenants, tiny) -> None:  # type: ignore[no-untyped-def]
    cases = [
        (tenants.acme, "a", "a"),
        (tenants.acme, "b", "b"),
        (tenants.globex, "c", "c"),
        (tenants.globex, "a", "d"),
        (tenants.acme, "tiny-llama", None),
        (tenants.globex, "d:1", "d"),
        (tenants.acme, "a@default", "a"),
        (tenants.globex, "tiny-llama", None),
    ] * 4
    expected = {name: text_of(tiny, name) for name in ("a", "b", "c", "d", None)}
    with ThreadPoolExecutor(32) as pool:
        calls = [
            pool.submit(streamed if i % 2 else complete, tenant, model) for i, (tenant, model, _) in enumerate(cases)
        ]
    for call, (_, model, adapter) in zip(calls, cases, strict=True):
        assert call.result() == expected[adapter], model


def test_the_version_that_served_the_request_is_named(tenants) -> None:  # type: ignore[no-untyped-def]
    response = tenants.globex.post("/v1/completions", json={"model": "a"} | GREEDY)
    name, _, digest = response.headers["x-loragate-adapter"].partition("@")
    assert name == "a:1"
    assert digest == ok(tenants.globex.get("/v1/adapters/a/versions"))["data"][0]["digest"]


def test_the_openai_client_chats_streams_and_lists(tenants) -> None:  # type: ignore[no-untyped-def]
    with openai.OpenAI(base_url=f"{tenants.server.base_url}/v1", api_key=tenants.acme_key) as official:
        assert {model.id for model in official.models.list()} >= {"tiny-llama", "a", "b"}
        question = [{"role": "user", "content": "what is the capital of France, and which river runs through it?"}]
        whole = official.chat.completions.create(model="a", messages=question, max_tokens=20, temperature=0)
        stream = official.chat.completions.create(
            model="a",
            messages=question,
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == whole.choices[0].message.content
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        assert 0 < chunks[-1].usage.prompt_tokens_details.cached_tokens < whole.usage.prompt_tokens
        assert whole.usage.completion_tokens <= 20


def test_sampling_is_the_same_for_the_same_seed_in_any_batch(tenants) -> None:  # type: ignore[no-untyped-def]
    drawn = {"temperature": 1.2, "seed": 11, "top_p": 0.95}
    alone = complete(tenants.acme, "a", **drawn)
    with ThreadPoolExecutor(8) as pool:
        noise = [pool.submit(complete, tenants.globex, "c", temperature=1.0) for _ in range(7)]
        crowded = pool.submit(complete, tenants.acme, "a", **drawn)
    assert crowded.result() == alone
    assert len({call.result() for call in noise}) > 1


@pytest.mark.parametrize("model", ["b", "c", "nothing", "b:1", "b@default", "c:1"])
def test_a_foreign_adapter_is_not_found(tenants, model: str) -> None:  # type: ignore[no-untyped-def]
    """b is acme's, c is globex's: another tenant's adapter gets the same error as one that does not exist."""
    tenant = tenants.globex if model.startswith("b") else tenants.acme
    response = tenant.post("/v1/completions", json={"model": model} | GREEDY)
    missing = tenant.post("/v1/completions", json={"model": "missing"} | GREEDY)
    assert response.status_code == missing.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert response.text.replace(f"'{model}'", "'missing'") == missing.text


def test_a_new_version_serves_the_next_request_and_the_old_one_stays(tenants, tiny) -> None:  # type: ignore[no-untyped-def]
    ok(upload(tenants.acme, "moving", tiny.adapters["a"]))
    assert complete(tenants.acme, "moving") == text_of(tiny, "a")
    ok(upload(tenants.acme, "moving", tiny.adapters["b"]))
    assert complete(tenants.acme, "moving") == text_of(tiny, "b")
    assert complete(tenants.acme, "moving:1") == text_of(tiny, "a")
    targets = {"targets": [{"version": 1, "weight": 1}]}
    ok(tenants.acme.put("/v1/adapters/moving/aliases/default", json=targets))
    assert complete(tenants.acme, "moving") == text_of(tiny, "a")


def test_a_broken_adapter_is_rejected_by_the_tensors_name_and_stays_invisible(tenants, tiny, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(tiny.adapters["a"] / "adapter_model.safetensors")
    name = min(tensors)
    tensors[name] = torch.full_like(tensors[name], float("nan"))
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text((tiny.adapters["a"] / "adapter_config.json").read_text())
    response = upload(tenants.acme, "broken", tmp_path)
    assert response.status_code == 400
    assert name in response.json()["error"]["message"] + response.json()["error"]["param"]
    assert tenants.acme.get("/v1/adapters/broken").status_code == 404


def test_a_prompt_that_is_too_long(tenants) -> None:  # type: ignore[no-untyped-def]
    response = tenants.acme.post("/v1/completions", json={"model": "a"} | GREEDY | {"prompt": [7] * 600})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.long
def test_killing_the_engine_mid_stream_ends_the_stream_with_a_typed_error_and_it_comes_back(tenants, tiny) -> None:  # type: ignore[no-untyped-def]
    body = {"model": "a", "stream": True} | GREEDY | {"max_tokens": 490}
    events = []
    engine = tenants.server.runtime["pids"]["engine"]
    with tenants.acme.stream("POST", "/v1/completions", json=body) as response:
        for line in response.iter_lines():
            if line:
                events.append(line.removeprefix("data: "))
            if len(events) == 3:
                os.kill(engine, signal.SIGKILL)
    assert events[-1] != "[DONE]"
    assert json.loads(events[-1])["error"]["code"] == "engine_unavailable"
    down = tenants.acme.post("/v1/completions", json={"model": "a"} | GREEDY)
    if down.status_code != 200:  # unless it is back already
        assert down.status_code == 503
        assert int(down.headers["retry-after"]) >= 1
    until(lambda: tenants.acme.get("/readyz").status_code == 200)
    assert tenants.server.runtime["pids"]["engine"] != engine
    assert complete(tenants.acme, "a") == text_of(tiny, "a")
    assert complete(tenants.globex, "a") == text_of(tiny, "d")
