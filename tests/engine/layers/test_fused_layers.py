"""Which gated MLPs and rotary embeddings take one launch on a GPU, and that all others stay unchanged."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny_models import make_model
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaMLP

from loragate.engine.layers import rotary
from loragate.engine.layers.gated_mlp import Gated, GatedMlp, recognize
from loragate.engine.model.tracing import trace
from loragate.kernels.gated import Activation

LLAMA = Gated("gate_proj", "up_proj", "down_proj", Activation.SILU)
GATES = {
    "llama": LLAMA,
    "qwen2": LLAMA,
    "gemma2": Gated("gate_proj", "up_proj", "down_proj", Activation.GELU_TANH),
    "gpt2": None,  # no gate
    "phi3": None,  # one linear for both
}
TURNING = {"llama": True, "gemma3_text": True, "gpt_neox": True, "phi3": True, "gpt2": False, "gpt_oss": False}


def gates(model: PreTrainedModel) -> Iterator[Gated | None]:
    modules = dict(model.named_modules())
    for names in trace(model).groups:
        parent, _, _ = names[0].rpartition(".")
        yield recognize(modules[parent], [name.rpartition(".")[2] for name in names], model.device, model.dtype)


@pytest.mark.parametrize(
    ("rope", "reads"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, True),
        ({"type": "dynamic", "factor": 2.0}, True),
        ({"full_attention": {"rope_type": "dynamic"}, "sliding_attention": {"rope_type": "default"}}, True),
        ({"full_attention": {"rope_type": "linear"}, "sliding_attention": {"rope_type": "default"}}, False),
        ({"rope_type": "llama3"}, False),
        (None, False),
    ],
)
def test_models_that_read_positions_on_the_host(rope: dict[str, Any] | None, reads: bool) -> None:
    config = make_model("llama").config
    config.rope_parameters = rope
    found = rotary.host_reads(config)
    assert found == ("rope_type dynamic looks at positions on the host" if reads else None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", GATES)
def test_the_gate_of_each_family_is_recognized(family: str, dtype: torch.dtype) -> None:
    model = make_model(family).to(dtype)
    expected = GATES[family]
    assert set(gates(model)) - {None} == ({expected} if expected else set())


class Doubled(LlamaMLP):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_an_mlp_with_additional_work_is_not_replaced() -> None:
    config = make_model("llama").config
    for kind, known in ((LlamaMLP, LLAMA), (Doubled, None)):
        assert recognize(kind(config), ["gate_proj", "up_proj"], torch.device("cpu"), torch.float32) == known


def test_a_gated_mlp_computes_the_same() -> None:
    mlp = LlamaMLP(make_model("llama").config)
    parts: dict[str, nn.Module] = dict(mlp.named_children())
    x = torch.randn(1, 3, mlp.hidden_size)
    assert torch.allclose(GatedMlp(parts, LLAMA)(x), mlp(x), atol=1e-6)


@pytest.mark.parametrize("family", TURNING)
def test_the_rotation_of_each_family_is_recognized(family: str) -> None:
    model = make_model(family)
    assert {rotary.fuse(layer.module) for layer in trace(model).attention} == {TURNING[family]}


@torch.inference_mode()
def test_another_model_of_the_family_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = make_model("llama"), make_model("llama")
    tokens = torch.arange(5)[None]
    expected = other(tokens).logits
    for layer in trace(ours).attention:
        rotary.fuse(layer.module)
    calls = []
    turn = rotary.kernel.rotate
    monkeypatch.setattr(rotary.kernel, "rotate", lambda *a: (calls.append(1), turn(*a))[1])
    assert torch.equal(other(tokens).logits, expected)
    assert not calls
    assert torch.allclose(ours(tokens).logits, expected, atol=1e-5)
    assert len(calls) == ours.config.num_hidden_layers
