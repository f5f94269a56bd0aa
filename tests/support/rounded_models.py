"""The oracle of weights and inputs in fp8: a model that rounds both, and multiplies them in single precision."""

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.kernels.quantized_rows import quantize


def rounded(rows: Tensor) -> Tensor:
    """Return rows [..., n] as fp8 stores them, each with its own scale."""
    numbers, scales = quantize(rows, torch.float8_e4m3fn)
    return numbers.float() * scales


def rounding(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the model whose linears, except the head, round their weights and inputs; PEFT's do not."""
    other = copy.deepcopy(model)
    for name, module in other.named_modules():
        if type(module) is nn.Linear and name != "lm_head":
            module.weight.data = rounded(module.weight.data)
            module.register_forward_pre_hook(lambda _, args: (rounded(args[0]),))
    return other
