"""Requests for the base model and for adapters in one batch, compared with PEFT's tokens."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
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


def check_mixed_batch(engine: LocalEngine, model: PreTrainedModel, adapters: Mapping[str, Path]) -> None:
    """Check that a batch of the base model and its adapters equals PEFT on the same model, one request at a time."""
    named = list(zip(PROMPTS, cycle([None, *adapters]), strict=False))
    requests = [engine.submit(prompt, name, max_tokens=8) for prompt, name in named]
    for request, (prompt, name) in zip(requests, named, strict=True):
        engine.result(request)
        assert engine.tokens(request) == greedy(model, prompt, 8, name and adapters[name]), (name, len(prompt))
