"""Our tokens beside PEFT's, on a few layers of the served model: all in float32, and the most likely ones in bfloat16.

Random weights leave the most likely token little in front of the next, so in bfloat16 PEFT too now and then differs
from itself in float32: that share stands beside ours.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu_cases import Setting
from gpu_models import ALL, build, peft

from loragate.engine.local import LocalEngine

Figures = dict[str, Any]
_RANKS = (8, 16, 64)


@torch.inference_mode()
def compare(setting: Setting) -> Figures:
    sizes = replace(setting.sizes, layers=setting.sizes.checked_layers)
    folder = setting.folder / "checked"
    adapters = [path for rank in _RANKS for path in build(setting, sizes, folder, ALL, rank, 2)]
    rng = random.Random(0)
    prompts = [
        [rng.randrange(3, sizes.vocabulary) for _ in range(length)]
        for length in (1, *(1 + rng.randrange(4 * sizes.prompt) for _ in range(2 * len(adapters) - 1)))
    ]
    served = [_served(setting, folder, adapters, prompts, dtype) for dtype in (torch.float32, setting.dtype)]
    exact = peft(setting, folder / "base", adapters, torch.float32)
    equal = sum(
        _greedy(exact, prompt, i % len(adapters), len(tokens)) == tokens
        for i, (prompt, tokens) in enumerate(zip(prompts, served[0], strict=True))
    )
    given = list(zip(prompts, served[1], strict=True))
    precise = [_likeliest(exact, *each, i % len(adapters)) for i, each in enumerate(given)]
    del exact
    setting.free()
    half = peft(setting, folder / "base", adapters, setting.dtype)
    rounded = [_likeliest(half, *each, i % len(adapters)) for i, each in enumerate(given)]
    figures = {
        "requests": len(prompts),
        "float32_equal": equal,
        "bfloat16_same_as_peft": _share([tokens for _, tokens in given], rounded),
        "bfloat16_same_as_float32": _share([tokens for _, tokens in given], precise),
        "peft_bfloat16_same_as_float32": _share(rounded, precise),
    }
    print(figures, flush=True)
    return figures


def _served(
    setting: Setting, folder: Path, adapters: Sequence[Path], prompts: Sequence[Sequence[int]], dtype: torch.dtype
) -> list[list[int]]:
    """Greedy tokens of all prompts, in one batch of all adapters."""
    names = {f"a{i}": path for i, path in enumerate(adapters)}
    name = str(dtype).removeprefix("torch.")
    engine = LocalEngine(folder / "base", folder / "cache", names, adapter_slots=len(adapters), dtype=name)
    try:
        new = setting.sizes.new_tokens
        asked = [engine.submit(p, f"a{i % len(adapters)}", max_tokens=new) for i, p in enumerate(prompts)]
        for request in asked:
            error = engine.result(request)[-1].error
            assert error is None, error
        return [engine.tokens(request) for request in asked]
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


def _likeliest(model: Any, prompt: Sequence[int], tokens: Sequence[int], adapter: int) -> list[int]:
    """Behind the prompt and each of the tokens but the last, what the model would take."""
    model.set_adapter(f"a{adapter}")
    ids = torch.tensor([[*prompt, *tokens[:-1]]], device=model.device)
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 :]
    return [int(token) for token in logits.argmax(dim=-1)]


def _share(some: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    pairs = [pair for a, b in zip(some, others, strict=True) for pair in zip(a, b, strict=True)]
    return round(sum(a == b for a, b in pairs) / len(pairs), 4)
