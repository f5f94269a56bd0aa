"""Outputs of a tiny model with an adapter, loaded by PEFT or applied by loragate's plan."""

from pathlib import Path
from typing import Any

import peft
import torch
from plan_reference import merge
from safetensors.torch import load
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.read import read_adapter
from loragate.peft_format.safetensors.header import TensorSpec

TOKENS = torch.tensor([[3, 17, 5, 90, 41, 8, 5, 12], [7, 1, 60, 95, 2, 33, 0, 11]])


def read(upload: Any) -> AdapterPlan:
    return read_adapter(upload.config, upload.file, len(upload.tensors), upload.layout).plan


def logits(model: nn.Module) -> Tensor:
    """Return the outputs in double precision."""
    with torch.inference_mode():
        answer: Tensor = model.eval().double()(input_ids=TOKENS, use_cache=False).logits
        return answer


def output_by_peft(upload: Any, base: PreTrainedModel, folder: Path) -> Tensor:
    (folder / "adapter_config.json").write_bytes(upload.config)
    (folder / "adapter_model.safetensors").write_bytes(upload.tensors)
    return logits(peft.PeftModel.from_pretrained(base, folder))


def output_by_plan(plan: AdapterPlan, upload: Any, base: PreTrainedModel) -> Tensor:
    values = load(upload.tensors)

    def value(spec: TensorSpec) -> Tensor:
        assert values[spec.name].shape == spec.shape
        return values[spec.name].double()

    return logits(merge(plan, value, base))
