"""The engine on the Triton kernels, as on a GPU: here in Triton's interpreter, with the same tokens as PEFT's."""

import random
from pathlib import Path

import pytest
import torch
from tiny_models import VOCABULARY, add_adapter, greedy, make_model

from loragate.engine.local import LocalEngine
from loragate.kernels import gpu
from loragate.kernels.gpu import decode_attention, prefill_attention, segmented_lora

ADAPTERS = {
    "r4": {"r": 4},
    "r64": {"r": 64},
    "dora": {"r": 8, "use_dora": True},
    "biases": {"r": 8, "bias": "lora_only", "lora_bias": True},
    "whole": {"r": 4, "target_modules": ["q_proj", "up_proj"], "modules_to_save": ["lm_head"]},
}

TOKENS = 3  # the interpreter takes a second for each step

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="patches kernels onto the CPU")


@pytest.fixture(scope="module", params=["llama", "gemma2", pytest.param("qwen2", marks=pytest.mark.long)])
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sends every device to the kernels, and counts what reached them."""
    seen: list[str] = []
    attend, add = decode_attention.decode_attention, segmented_lora.SlotTable.add
    prefill = prefill_attention.prefill_attention
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    monkeypatch.setattr(decode_attention, "decode_attention", lambda *a: (seen.append("attention"), attend(*a))[1])
    monkeypatch.setattr(prefill_attention, "prefill_attention", lambda *a: (seen.append("prefill"), prefill(*a))[1])
    monkeypatch.setattr(segmented_lora.SlotTable, "add", lambda *a: (seen.append("lora"), add(*a))[1])
    return seen


def test_a_mixed_batch_equals_peft(architecture: str, tmp_path: Path, launches: list[str]) -> None:
    model = make_model(architecture)
    model.save_pretrained(tmp_path / "base")
    adapters = {
        name: add_adapter(model, tmp_path / name, seed, **options)
        for seed, (name, options) in enumerate(ADAPTERS.items())
    }
    engine = LocalEngine(
        tmp_path / "base", tmp_path / "cache", adapters, threads=1, adapter_slots=3, block_size=8, kv_cache_tokens=512
    )
    rng = random.Random(1)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in (1, 5, 30, 12, 3, 20, 9)]
    names = [None, *adapters, "r64"]
    try:
        requests = [engine.submit(prompt, name, max_tokens=TOKENS) for prompt, name in zip(prompts, names, strict=True)]
        for request in requests:
            engine.result(request)
        for request, prompt, name in zip(requests, prompts, names, strict=True):
            assert engine.tokens(request) == greedy(model, prompt, TOKENS, name and adapters[name]), name
    finally:
        engine.close()
    assert set(launches) == {"attention", "prefill", "lora"}
