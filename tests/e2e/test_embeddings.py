"""Embeddings through the whole stack: the official client, the real engine, and transformers as the oracle."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest
from tiny_models import final_states
from transformers import AutoTokenizer

TEXTS = ["who is it?", "what is the capital of France? " * 10, "x"]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_equal_transformers_during_generation(tenants, tiny, pooling: str) -> None:  # type: ignore[no-untyped-def]
    encode = AutoTokenizer.from_pretrained(tiny.base).encode
    with (
        openai.OpenAI(base_url=f"{tenants.server.base_url}/v1", api_key=tenants.acme_key) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        busy = [
            pool.submit(client.completions.create, model=model, prompt="who", max_tokens=100)
            for model in ("tiny-llama", "a", "b")
        ]
        for model in ("tiny-llama", "a"):
            answer = client.embeddings.create(model=model, input=TEXTS, extra_body={"pooling": pooling})
            assert answer.usage.prompt_tokens == sum(len(encode(text)) for text in TEXTS)
            for item, text in zip(answer.data, TEXTS, strict=True):
                states = final_states(tiny.model, encode(text), tiny.adapters.get(model)).numpy()
                vector = states[-1] if pooling == "last" else states.mean(axis=0)
                assert np.linalg.norm(item.embedding) == pytest.approx(1, abs=1e-5)
                assert item.embedding == pytest.approx(list(vector / np.linalg.norm(vector)), abs=1e-4)
        assert all(generation.result().usage.completion_tokens for generation in busy)
