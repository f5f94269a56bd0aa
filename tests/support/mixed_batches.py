"""Requests for the base model and for adapters in one batch, compared with PEFT's tokens."""

import copy
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from tiny_models import greedy
from transformers import AutoModelForCausalLM, PreTrainedModel

from loragate.engine.local import LocalEngine

PROMPTS = [[5, 9, 13, 21, 34], list(range(3, 90)), [7], [11, 12, 13] * 9]


def load(directory: Path, **options: Any) -> PreTrainedModel:
    """Load a model with transformers, in single precision."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", **options
    )
    return model.eval()


def check_mixed_batch(
    engine: LocalEngine, model: PreTrainedModel, adapters: Mapping[str, Path], *, tie: float = 0.0
) -> None:
    """Check that a batch of the base model and its adapters equals PEFT on the same model, one request at a time.

    With a `tie`, a token may be another than PEFT's if PEFT's logits of both differ by less: where inputs are rounded,
    the last bit of one can decide between two numbers. Another adapter's tokens differ by more than 0.7.
    """
    named = list(zip(PROMPTS, cycle([None, *adapters]), strict=False))
    requests = [engine.submit(prompt, name, max_tokens=8) for prompt, name in named]
    for request, (prompt, name) in zip(requests, named, strict=True):
        engine.result(request)
        tokens, adapter = engine.tokens(request), name and adapters[name]
        if tie:
            assert _behind_best(model, prompt, tokens, adapter) < tie, (name, len(prompt))
        else:
            assert tokens == greedy(model, prompt, 8, adapter, draft=tokens), (name, len(prompt))


def _behind_best(model: PreTrainedModel, prompt: list[int], tokens: list[int], adapter: Path | None) -> float:
    """Return by how much the logits of these tokens are below the best ones, at most, with the adapter by PEFT."""
    oracle: Any = model if adapter is None else PeftModel.from_pretrained(copy.deepcopy(model), adapter).eval()
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return float((logits.amax(1) - logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]).max())
