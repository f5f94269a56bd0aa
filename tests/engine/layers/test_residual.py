"""Which decoder layers launch their sums with the norms that read them, with the same bits, and that others stay
unchanged."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import make_model
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from loragate.engine.layers import residual
from loragate.engine.layers.forward_context import ForwardContext, StepBatch
from loragate.engine.layers.rms_norm import FusedNorm, fused
from loragate.engine.layers.row_patches import OwnParameters
from loragate.engine.layers.rowwise_module import SlotModule
from loragate.engine.model.tracing import trace
from loragate.kernels import gpu
from loragate.kernels.gpu import rms_norm as kernel
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.segments import Segment

KNOWN = ("llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe", "gpt_oss")
OTHERS = {
    "gemma2": "norms between attention and the sum",
    "gemma3_text": "the same",
    "olmo2": "norms after attention",
    "gpt_neox": "attention and MLP side by side",
    "gpt2": "LayerNorms of other parts",
    "opt": "no module for the MLP",
}
TOKENS = torch.arange(3, 10)[None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", KNOWN)
def test_each_sum_is_read_by_the_next_norm(family: str, dtype: torch.dtype) -> None:
    found = trace(make_model(family).to(dtype)).residual
    following = [layer.following for layer in found.values()]
    assert following == ["model.layers.1.input_layernorm", "model.norm"]
    assert {(layer.parts.first, layer.parts.second, layer.parts.mlp) for layer in found.values()} == {
        ("input_layernorm", "post_attention_layernorm", "mlp")
    }


@pytest.mark.parametrize("family", OTHERS)
def test_layers_of_other_families_are_not_known(family: str) -> None:
    assert not trace(make_model(family)).residual


def halves(sum_of: Callable[[Any, Tensor, Tensor], Tensor], last: Callable[[Any, Tensor, Tensor], Tensor]) -> type:
    """Return a Llama layer with other sums."""

    class Other(LlamaDecoderLayer):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
            normed = self.input_layernorm(hidden_states)
            total = sum_of(self, hidden_states, self.self_attn(hidden_states=normed, **kwargs)[0])
            return last(self, total, self.mlp(self.post_attention_layernorm(total)))

    return Other


def plain(_: Any, x: Tensor, y: Tensor) -> Tensor:
    return x + y


VARIANTS: dict[str, tuple[type, bool]] = {
    "same": (halves(plain, plain), True),
    "multiplied, as Granite's": (halves(lambda _, x, y: x + 0.5 * y, plain), False),
    "multiplied by one": (halves(lambda _, x, y: x + 1.0 * y, plain), True),
    "multiplied at the end": (halves(plain, lambda _, x, y: x + 0.5 * y), False),
    "clamped": (halves(lambda _, x, y: (x + y).clamp(-6e4, 6e4), plain), False),
    "clamped at the end": (halves(plain, lambda _, x, y: (x + y).clamp(-6e4, 6e4)), False),
    "normed at the end": (halves(plain, lambda self, x, y: self.input_layernorm(x + y)), False),
    "a tuple": (halves(plain, lambda _, x, y: (x + y,)), False),  # type: ignore[arg-type,return-value]
    "wider": (halves(plain, lambda _, x, y: x.double() + y), False),
    "its own parameter": (halves(plain, lambda self, x, y: x + y * self.mlp.down_proj.weight[0]), False),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_with_other_sums_are_not_known(variant: str) -> None:
    model = make_model("llama")
    kind, known = VARIANTS[variant]
    layer = kind(model.config, 0)
    x = torch.randn(1, 3, model.config.hidden_size)
    assert (residual.recognize(layer, layer.self_attn, x, {"attention_mask": None}) is not None) == known


def test_a_layer_with_another_part_or_argument_is_not_known() -> None:
    layer = VARIANTS["same"][0](make_model("llama").config, 0)
    x, given = torch.randn(1, 3, 32), {"attention_mask": None, "any": 3}
    assert residual.recognize(layer, layer.self_attn, x, given) is not None
    layer.add_module("unused", nn.Dropout())
    assert residual.recognize(layer, layer.self_attn, x, given) is not None
    layer.add_module("more", nn.Linear(2, 2))
    assert residual.recognize(layer, layer.self_attn, x, given) is None
    llama = make_model("llama").model.layers[0]
    assert residual.recognize(llama, llama.self_attn, x, given) is None, "it passes arguments that it was not given"


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), lambda x: x * 2])
def test_a_sum_that_changes_on_its_way_is_not_normed_ahead(change: Callable[[Tensor], Tensor]) -> None:
    model = make_model("llama")
    model.model.layers[1].register_forward_pre_hook(lambda _, args: (change(args[0]),))
    found = [layer.following for layer in trace(model).residual.values()]
    assert found == [None, "model.norm"]


def prepared(fuse: bool) -> tuple[PreTrainedModel, dict[str, FusedNorm]]:
    """Return a model whose norms are ours, and which computes with eager attention of transformers."""
    model = make_model("llama")
    traced, found = trace(model), {}
    for name in traced.rowwise:
        norm = fused(model.get_submodule(name))
        if norm is not None:
            found[name] = norm
            model.set_submodule(name, norm)
    for name, layer in traced.residual.items() if fuse else ():
        assert residual.fuse(model.get_submodule(name), layer.parts, found[layer.following or ""])
    return model, found


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets kernels serve every device, and counts the launches for sums."""
    seen: list[int] = []
    add = kernel.add_rms_norm
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    monkeypatch.setattr(kernel, "add_rms_norm", lambda *a: (seen.append(1), add(*a))[1])
    return seen


@torch.inference_mode()
def test_the_model_computes_the_same_bits(sums: list[int]) -> None:
    expected = prepared(fuse=False)[0](TOKENS).logits
    assert not sums
    model, found = prepared(fuse=True)
    for _ in range(2):
        assert torch.equal(model(TOKENS).logits, expected)
    assert len(sums) == 2 * 2 * 2
    assert all(norm._ahead is None for norm in found.values()), "nothing is kept"


@torch.inference_mode()
@pytest.mark.parametrize("own", ["layers.0.post_attention_layernorm", "layers.1.input_layernorm", "norm"])
def test_an_adapter_has_its_own_norm(own: str, sums: list[int]) -> None:
    """Its rows are corrected from the sum, behind the launch for all rows."""
    rows, logits = torch.arange(TOKENS.shape[1]), []
    weight = torch.randn(32, generator=torch.Generator().manual_seed(1))
    batch = StepBatch(rows, rows, rows, None, (), (Segment(2, 1, 3),), rows[-1:], ())
    for fuse in (False, True):
        model, found = prepared(fuse)
        plain = model(TOKENS).logits
        context = ForwardContext()
        SlotModule(found[f"model.{own}"], 1, context).put(2, OwnParameters({"weight": weight}))
        with context.running(batch):
            logits.append(model(TOKENS).logits)
        assert not torch.equal(logits[-1][:, 1:3], plain[:, 1:3])
        assert torch.equal(logits[-1][:, 0], plain[:, 0])
    assert torch.equal(*logits)
    assert sums


def test_a_norm_computes_ahead_only_for_the_very_sum(sums: list[int]) -> None:
    norm = FusedNorm(nn.Parameter(torch.randn(8), requires_grad=False), RmsNorm(1e-6))
    x, other = torch.randn(3, 8), torch.randn(3, 8)
    total = norm.add(x, other)
    assert torch.equal(norm(total.clone().mul_(3)), norm.kind(total * 3, norm.weight))
    total.add_(1)  # the norm that was computed ahead is gone
    assert torch.equal(norm(total), norm.kind(total, norm.weight))
    assert len(sums) == 1


def test_numbers_of_two_types_are_added_by_torch(sums: list[int]) -> None:
    norm = FusedNorm(nn.Parameter(torch.randn(8), requires_grad=False), RmsNorm(1e-6))
    x, other = torch.randn(3, 8), torch.randn(3, 8).bfloat16()
    assert torch.equal(norm.add(x, other), x + other)
    assert torch.equal(norm(x + other), norm.kind(x + other, norm.weight))
    assert not sums
