"""Which of a model's norms are computed in one pass, and that all others stay unchanged."""

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from loragate.engine.layers.rms_norm import FusedNorm, fused
from loragate.engine.layers.rowwise_module import twin
from loragate.kernels.rms_norm import RmsNorm

FAMILIES = {
    LlamaRMSNorm: RmsNorm(1e-6, rounds_first=True),
    GptOssRMSNorm: RmsNorm(1e-6),
    Gemma2RMSNorm: RmsNorm(1e-6, shift=1.0),
}


class Doubled(LlamaRMSNorm):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_recognized(family: type[nn.Module]) -> None:
    """Both in bfloat16, where the point of rounding shows, and with the weights of a fresh model, where it does not."""
    norm = family(64).bfloat16()
    known = fused(norm)
    assert known is not None
    assert known.kind == FAMILIES[family]
    assert known.weight is norm.weight
    x = torch.randn(3, 64).bfloat16()
    assert torch.equal(known(x), norm(x))


@pytest.mark.parametrize("norm", [nn.LayerNorm(64), nn.LayerNorm(64, bias=False), Doubled(64), nn.Linear(64, 64)])
def test_other_norms_are_not_replaced(norm: nn.Module) -> None:
    assert fused(norm) is None


def test_an_adapter_can_have_its_own_weight() -> None:
    """`modules_to_save` of norms goes through a twin with other parameters."""
    norm, other = LlamaRMSNorm(64), torch.randn(64)
    known = fused(norm)
    assert isinstance(known, FusedNorm)
    x = torch.randn(3, 64)
    expected = twin(norm, weight=other)(x)
    assert torch.allclose(twin(known, weight=other)(x), expected, atol=1e-6)
