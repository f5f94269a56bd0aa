"""Training on base models whose weights are saved quantized: on these weights, computed without rounding."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from quantized_checkpoints import save_compressed, save_fp8, save_mxfp4
from tiny_models import make_model
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from loragate.finetune.data.formats import Method
from loragate.finetune.training.adapter import new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.protocol.messages import Metrics
from tests.finetune.runs import RECIPES, make_tokens, run_training

CPU = torch.device("cpu")
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
W8A8 = {"weights": INT8, "input_activations": INT8 | {"strategy": "token", "dynamic": True}}


SAVES: dict[str, Callable[[PreTrainedModel, Path], Any]] = {
    "W8A8": lambda model, folder: save_compressed(model, folder, W8A8),
    "fp8": save_fp8,
}


def check_gradients(model: PreTrainedModel) -> None:
    """Check that the loss reaches every adapted layer: rounding of activations has no gradient."""
    adapted = new_adapter(model, RECIPES[Method.SUPERVISED])
    tokens = torch.arange(2, 9)[None]
    adapted(input_ids=tokens, labels=tokens).loss.backward()
    without = [
        name for name, p in adapted.named_parameters() if "lora_B" in name and (p.grad is None or not p.grad.any())
    ]
    assert without == []


@pytest.mark.parametrize("how", SAVES)
def test_a_run_learns_on_weights_that_are_saved_quantized(how: str, base: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    SAVES[how](model, tmp_path / "base")
    check_gradients(load_base(tmp_path / "base", "none", CPU))
    PreTrainedTokenizerFast.from_pretrained(base).save_pretrained(tmp_path / "base")
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED)
    recipe = replace(RECIPES[Method.SUPERVISED], quantization="none", epochs=1)
    losses: list[Metrics] = []
    run_training(tmp_path / "base", tokens, tmp_path / "run", recipe, losses.append)
    first, *_, last = [each.train_loss for each in losses if each.train_loss is not None]
    assert last < 0.95 * first


def test_a_base_in_mxfp4_is_trained_on_its_dense_weights(tmp_path: Path) -> None:
    dense = save_mxfp4(make_model("gpt_oss", hidden_size=64, intermediate_size=96), tmp_path / "base")
    model = load_base(tmp_path / "base", "none", CPU)
    assert all(torch.equal(model.get_parameter(name), weights) for name, weights in dense.items())
    assert not model.is_quantized
    check_gradients(model)
