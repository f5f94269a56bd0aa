"""Greedy generation with transformers and PEFT: a reference that is independent of loragate's engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from loragate.demo.tool_use.evaluate import Case

_BATCH = 128

Message = Mapping[str, Any]


def _load(model_dir: Path, adapter_dir: Path | None) -> Any:
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    return model if adapter_dir is None else PeftModel.from_pretrained(model, adapter_dir).merge_and_unload()


class GreedyChat:
    """A base model, optionally with an adapter, that answers single questions and continues chats.

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
        return self._in_batches([self._prompt([{"role": "user", "content": question}]) for question in questions])

    def in_chats(self, cases: Sequence[Case]) -> list[str]:
        """Return the model's next message in each chat, tool calls included."""
        return self._in_batches([self._prompt(case.messages, case.tools) for case in cases])

    def _prompt(self, messages: Sequence[Message], tools: Sequence[Message] = ()) -> str:
        prompt: str = self._tokenizer.apply_chat_template(
            list(messages), tools=list(tools) or None, add_generation_prompt=True, tokenize=False
        )
        return prompt

    def _in_batches(self, prompts: Sequence[str]) -> list[str]:
        # Batches of similar lengths need little padding.
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        replies = [""] * len(prompts)
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            for index, reply in zip(chosen, self._reply([prompts[i] for i in chosen]), strict=True):
                replies[index] = reply
        return replies

    def _reply(self, prompts: list[str]) -> list[str]:
        inputs = self._tokenizer(prompts, padding=True, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            tokens = self._model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=False,
                max_new_tokens=self._max_new_tokens,
            )
        replies: list[str] = self._tokenizer.batch_decode(
            tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        return replies
