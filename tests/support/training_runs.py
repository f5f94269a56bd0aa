"""Tiny trainers, random data, and PEFT with torch.optim.AdamW as the reference."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from tiny_models import VOCABULARY, make_model
from transformers import PreTrainedModel

from loragate.engine.config import EngineConfig
from loragate.trainer.trainer import AdamParams, Datum, ForwardBackward, ForwardBackwardResult, Trainer

CONFIG: Mapping[str, Any] = {"model": "", "listen": "", "cache_dir": Path("."), "device": "cpu"}


def save_model(root: Path, model_type: str, **overrides: Any) -> tuple[PreTrainedModel, Path]:
    model = make_model(model_type, **overrides)
    model.save_pretrained(root / model_type)
    return model, root / model_type


def load_trainer(folder: Path, dtype: str = "float32", **options: Any) -> Trainer:
    return Trainer.load(folder, EngineConfig(**CONFIG, dtype=dtype), **options)  # type: ignore[arg-type]


def datum(seed: int, length: int, *, targets: int = 0, sampled: bool = False) -> Datum:
    """Return a random sequence; with `targets` as [T, K], with `sampled` with what policy gradients need."""
    random = np.random.default_rng(seed)
    shape = (length, targets) if targets else (length,)
    inputs: dict[str, Any] = {"target_tokens": random.integers(0, VOCABULARY, shape)}
    if sampled:
        inputs["logprobs"] = random.normal(-4, 1, shape).astype(np.float32)
        inputs["advantages"] = random.normal(size=length).astype(np.float32)
    else:
        weights = random.uniform(0.1, 1, shape).astype(np.float32)
        weights[: length // 3] = 0
        inputs["weights"] = weights
    return Datum(random.integers(0, VOCABULARY, length), inputs)


def request(
    run_id: str, data: Sequence[Datum], loss_fn: str = "cross_entropy", *, forward_only: bool = False, **config: float
) -> ForwardBackward:
    return ForwardBackward(run_id, tuple(data), loss_fn, config, forward_only)


def compute(trainer: Trainer, *requests: ForwardBackward) -> list[ForwardBackwardResult]:
    results = trainer.forward_backward(requests)
    for result in results:
        if not isinstance(result, ForwardBackwardResult):
            raise result
    return results  # type: ignore[return-value]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class PeftReference:
    """The same adapter in PEFT, trained by torch.optim.AdamW, one sequence at a time."""

    def __init__(self, model: PreTrainedModel, files: tuple[bytes, bytes], folder: Path) -> None:
        self.model = load_in_peft(model, files, folder, is_trainable=True)
        self._optimizer: torch.optim.AdamW | None = None

    def forward_backward(self, data: Sequence[Datum]) -> float:
        """Return the cross-entropy of the data, and add its gradient."""
        total = 0.0
        for each in data:
            loss = self.loss(each)
            loss.backward()
            total += float(loss)
        return total

    def loss(self, each: Datum) -> torch.Tensor:
        logits = self.model(input_ids=torch.from_numpy(each.tokens)[None], use_cache=False).logits[0].float()
        logprobs = logits.log_softmax(dim=-1).gather(1, torch.from_numpy(each.targets))
        weights = torch.from_numpy(each.inputs["weights"]).view_as(logprobs)
        return -(weights * logprobs).sum()

    def step(self, params: AdamParams) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if self._optimizer is None:
            self._optimizer = torch.optim.AdamW(
                parameters,
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
                foreach=False,
            )
        if params.grad_clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, params.grad_clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()


def load_in_peft(model: PreTrainedModel, files: tuple[bytes, bytes], folder: Path, **options: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(files[0])
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(files[1])
    return PeftModel.from_pretrained(copy.deepcopy(model), folder, **options).eval()
