"""Logprobs of prompts through the whole stack: the official client, the real engine, and PEFT as the oracle."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
import torch
from tiny_models import greedy, prompt_logprobs
from transformers import AutoTokenizer

ROUNDING = 5e-4  # of float32 in a model whose weights are so large
CONTEXTS = (3, 1, 40)


@pytest.fixture
def official(tenants):  # type: ignore[no-untyped-def]
    with openai.OpenAI(base_url=f"{tenants.server.base_url}/v1", api_key=tenants.acme_key) as client:
        yield client


@pytest.mark.parametrize("model", ["tiny-llama", "a"])
def test_log_likelihoods_of_lm_evaluation_harness(official: openai.OpenAI, tiny: Any, model: str) -> None:
    """The request of its model `local-completions`, and what it takes from the answer, beside other requests."""
    prompts = [[(7 * i * i + at) % 300 + 3 for i in range(30 * at + 5)] for at in range(3)]
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1, "echo": True}
    with ThreadPoolExecutor(3) as pool:
        busy = [
            pool.submit(official.completions.create, model=name, prompt="who", max_tokens=100)
            for name in ("tiny-llama", "a", "b")
        ]
        answers = [official.completions.create(prompt=prompts, **body) for _ in range(2)]  # the second finds blocks
        assert all(generation.result().usage for generation in busy)
    for answer in answers:
        for choice, prompt, context in zip(answer.choices, prompts, CONTEXTS, strict=True):
            expected = prompt_logprobs(tiny.model, prompt, tiny.adapters.get(model))[context - 1 :]
            own = expected.gather(1, torch.tensor(prompt[context:], dtype=torch.long)[:, None])[:, 0].tolist()
            assert choice.logprobs is not None
            assert choice.logprobs.token_logprobs is not None
            assert choice.logprobs.top_logprobs is not None
            continuation = slice(context, -1)
            assert choice.logprobs.token_logprobs[continuation] == pytest.approx(own, abs=ROUNDING)
            largest = [max(each.values()) for each in choice.logprobs.top_logprobs[continuation]]
            assert largest == pytest.approx(expected.max(dim=-1).values.tolist(), abs=ROUNDING)


def test_prompt_logprobs_of_a_chat_and_of_a_text_without_a_completion(official: openai.OpenAI, tiny: Any) -> None:
    text = "what is the capital of France?"
    ids = AutoTokenizer.from_pretrained(tiny.base).encode(text)
    body: dict[str, Any] = {"max_tokens": 0, "extra_body": {"prompt_logprobs": 3}}
    (choice,) = official.completions.create(model="b", prompt=text, **body).choices
    expected = prompt_logprobs(tiny.model, ids, tiny.adapters["b"])
    first, *others = choice.model_dump()["prompt_logprobs"]
    assert (first, choice.text, choice.finish_reason) == (None, "", "length")
    for entry, token, row in zip(others, ids[1:], expected, strict=True):
        found = entry[str(token)]
        assert found["logprob"] == pytest.approx(float(row[token]), abs=ROUNDING)
        assert found["rank"] == int((row > row[token]).sum()) + 1
        top = [each["logprob"] for each in entry.values() if each["rank"] <= 3]
        assert sorted(top, reverse=True) == pytest.approx(row.topk(3).values.tolist(), abs=ROUNDING)
    messages: Any = [{"role": "user", "content": text}]
    chat = official.chat.completions.create(
        model="b", messages=messages, max_tokens=4, temperature=0, extra_body={"prompt_logprobs": 0}
    )
    assert chat.usage is not None
    assert len(chat.model_dump()["prompt_logprobs"]) == chat.usage.prompt_tokens


def test_a_stream_echoes_a_scored_prompt(official: openai.OpenAI, tiny: Any) -> None:
    prompt = [40, 41, 42, 43, 44]
    body: dict[str, Any] = {"model": "a", "prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 4}
    stream = official.completions.create(stream=True, temperature=0, extra_body={"ignore_eos": True}, **body)
    found = [value for chunk in stream for choice in chunk.choices for value in choice.logprobs.token_logprobs]
    expected = prompt_logprobs(
        tiny.model, prompt + greedy(tiny.model, prompt, 4, tiny.adapters["a"]), tiny.adapters["a"]
    )
    tokens = [*prompt[1:], *greedy(tiny.model, prompt, 4, tiny.adapters["a"])]
    assert found[0] is None
    assert found[1:] == pytest.approx(
        [float(row[token]) for row, token in zip(expected, tokens, strict=True)], abs=ROUNDING
    )
