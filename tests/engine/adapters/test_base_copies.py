"""An adapter that contains a copy of the base model's embedding fits that base model only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tiny_models import add_adapter, greedy

TENSORS = "adapter_model.safetensors"
COPY = "base_model.model.model.embed_tokens.base_layer.weight"


def adapter_with_embedding(tiny: Any, directory: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    adapter = add_adapter(tiny.model, directory, 1, target_modules=["embed_tokens", "q_proj"])
    tensors = load_file(adapter / TENSORS)
    tensors[COPY] = change(tiny.model.get_input_embeddings().weight.detach().clone())
    save_file(tensors, adapter / TENSORS)
    return adapter


def test_a_copy_of_this_base_is_accepted(tiny: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    adapters = {
        "as is": adapter_with_embedding(tiny, tmp_path / "1", lambda weight: weight),
        "rounded": adapter_with_embedding(tiny, tmp_path / "2", lambda weight: weight.bfloat16()),
    }
    engine = start(adapters=adapters)
    for name, adapter in adapters.items():
        assert engine.generate([5, 6, 7], name) == greedy(tiny.model, [5, 6, 7], 8, adapter)


def test_a_copy_of_another_base_is_rejected_by_name(tiny: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    def with_one_value_changed(weight: torch.Tensor) -> torch.Tensor:
        weight[3, 4] += 1e-3
        return weight

    engine = start(adapters={"a": adapter_with_embedding(tiny, tmp_path / "a", with_one_value_changed)})
    (output,) = engine.result(engine.submit([5, 6, 7], "a"))
    assert output.error is not None
    assert "model.embed_tokens.weight of the base model that it was trained on" in output.error[1]
