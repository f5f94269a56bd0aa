"""Greedy generation with transformers and PEFT: a reference that is independent of loragate's engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

_BATCH = 64


def _load(model_dir: Path, adapter_dir: Path | None) -> Any:
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    return model if adapter_dir is None else PeftModel.from_pretrained(model, adapter_dir)


class GreedyChat:
    """A base model, optionally with an adapter, that answers single questions.

    `model` replaces what the folders hold, for a model in training; its tokenizer is still in `model_dir`.
    """

    def __init__(
        self, model_dir: Path, adapter_dir: Path | None = None, max_new_tokens: int = 64, *, model: Any = None
    ) -> None:
        self._model: Any = _load(model_dir, adapter_dir) if model is None else model
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
        self._max_new_tokens = max_new_tokens

    def __call__(self, questions: Sequence[str]) -> list[str]:
        """Return one reply per question, in their order."""
        # Batches of similar lengths need little padding.
        order = sorted(range(len(questions)), key=lambda index: len(questions[index]))
        replies = [""] * len(questions)
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            for index, reply in zip(chosen, self._reply([questions[i] for i in chosen]), strict=True):
                replies[index] = reply
        return replies

    def _reply(self, questions: list[str]) -> list[str]:
        chats = [[{"role": "user", "content": question}] for question in questions]
        prompts = self._tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            tokens = self._model.generate(**prompts, do_sample=False, max_new_tokens=self._max_new_tokens)
        replies: list[str] = self._tokenizer.batch_decode(
            tokens[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
        )
        return replies
