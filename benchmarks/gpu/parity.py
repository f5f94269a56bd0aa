"""Comparison of our tokens with PEFT's on a few layers of the served model, in float32 and in bfloat16.

With random weights, the most likely token is only slightly ahead of the next one, so PEFT in bfloat16 sometimes differs
from PEFT in float32 too: that share is reported with ours.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.cases import Setting
from benchmarks.gpu.models import ALL, build, peft
from benchmarks.lib.partial_results import PartialResults
from loragate.engine.local import LocalEngine

_RANKS = (8, 16, 64)


@torch.inference_mode()
def compare(setting: Setting, results: PartialResults) -> None:
    sizes = replace(setting.sizes, layers=setting.sizes.checked_layers)
    folder = setting.folder / "checked"
    adapters = [path for rank in _RANKS for path in build(setting, sizes, folder, ALL, rank, 2)]
    rng = random.Random(0)
    prompts = [
        [rng.randrange(3, sizes.vocabulary) for _ in range(length)]
        for length in (1, *(1 + rng.randrange(4 * sizes.prompt) for _ in range(2 * len(adapters) - 1)))
    ]
    results.record("requests", lambda: len(prompts))
    served_float32 = _served(setting, folder, adapters, prompts, torch.float32)
    exact = peft(setting, folder / "base", adapters, torch.float32)
    results.record("float32_equal", partial(_equal, exact, prompts, served_float32, len(adapters)))
    sequences = list(zip(prompts, _served(setting, folder, adapters, prompts, setting.dtype), strict=True))
    served = [tokens for _, tokens in sequences]
    precise = [_most_likely(exact, *each, i % len(adapters)) for i, each in enumerate(sequences)]
    results.record("bfloat16_same_as_float32", lambda: _equal_share(served, precise))
    del exact
    setting.free()
    half = peft(setting, folder / "base", adapters, setting.dtype)
    rounded = [_most_likely(half, *each, i % len(adapters)) for i, each in enumerate(sequences)]
    results.record("bfloat16_same_as_peft", lambda: _equal_share(served, rounded))
    results.record("peft_bfloat16_same_as_float32", lambda: _equal_share(rounded, precise))
    print(results.figures, flush=True)


def _equal(model: Any, prompts: Sequence[Sequence[int]], served: Sequence[Sequence[int]], adapters: int) -> int:
    """Return how many requests got the same tokens as from PEFT."""
    return sum(
        _greedy(model, prompt, i % adapters, len(tokens)) == tokens
        for i, (prompt, tokens) in enumerate(zip(prompts, served, strict=True))
    )


def _served(
    setting: Setting, folder: Path, adapters: Sequence[Path], prompts: Sequence[Sequence[int]], dtype: torch.dtype
) -> list[list[int]]:
    """Return the greedy tokens of all prompts, served in one batch of all adapters."""
    names = {f"a{i}": path for i, path in enumerate(adapters)}
    name = str(dtype).removeprefix("torch.")
    engine = LocalEngine(folder / "base", folder / "cache", names, adapter_slots=len(adapters), dtype=name)
    try:
        new = setting.sizes.new_tokens
        requests = [engine.submit(p, f"a{i % len(adapters)}", max_tokens=new) for i, p in enumerate(prompts)]
        for request in requests:
            error = engine.result(request)[-1].error
            assert error is None, error
        return [engine.tokens(request) for request in requests]
    finally:
        engine.close()
        del engine
        setting.free()


def _greedy(model: Any, prompt: Sequence[int], adapter: int, new: int) -> list[int]:
    model.set_adapter(f"a{adapter}")
    ids = torch.tensor([prompt], device=model.device)
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return [int(token) for token in out[0, len(prompt) :]]


def _most_likely(model: Any, prompt: Sequence[int], tokens: Sequence[int], adapter: int) -> list[int]:
    """Return the model's most likely token after the prompt and after each of the tokens but the last."""
    model.set_adapter(f"a{adapter}")
    ids = torch.tensor([[*prompt, *tokens[:-1]]], device=model.device)
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 :]
    return [int(token) for token in logits.argmax(dim=-1)]


def _equal_share(some: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    pairs = [pair for a, b in zip(some, others, strict=True) for pair in zip(a, b, strict=True)]
    return round(sum(a == b for a, b in pairs) / len(pairs), 4)
