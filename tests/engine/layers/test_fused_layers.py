"""Which gated MLPs and rotary embeddings take one launch on a GPU, and that all others stay unchanged."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tiny_models import make_model
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, apply_rotary_pos_emb

from loragate.engine.layers import rotary
from loragate.engine.layers.attention import AttentionState, attach
from loragate.engine.layers.forward_context import ForwardContext, StepBatch
from loragate.engine.layers.gated_mlp import Gated, GatedMlp, recognize
from loragate.engine.model.tracing import trace
from loragate.kernels.gated import Activation
from loragate.kernels.kv_cache import LayerCache

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


Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def attention_with(change: Change, **named: int) -> type:
    """Return Llama's attention with other work between the rotation and attention."""

    class Other(LlamaAttention):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **_: Any) -> Any:
            shape = (*hidden_states.shape[:-1], -1, self.head_dim)
            linears = self.q_proj, self.k_proj, self.v_proj
            query, key, value = (linear(hidden_states).view(shape).transpose(1, 2) for linear in linears)
            query, key = apply_rotary_pos_emb(query, key, *position_embeddings, **named)
            attend = AttentionInterface()[self.config._attn_implementation]
            out, _ = attend(self, *change(query, key), value, None, scaling=self.scaling)
            return self.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), None

    return Other


def unchanged(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    return query, key


CHANGES: dict[str, tuple[type, bool]] = {
    "none": (attention_with(unchanged), True),
    "scaled queries": (attention_with(lambda q, k: (q * 2, k)), False),
    "the norm of keys": (attention_with(lambda q, k: (q, k / k.norm())), False),
    "in place": (attention_with(lambda q, k: (q.mul_(1), k)), False),
    "read only": (attention_with(lambda q, k: (q, k) if k.isfinite().all() else (k, q)), False),
    "read in a list": (attention_with(lambda q, k: (q, k) if len(torch.cat([k, k])) else (k, q)), False),
    "another argument": (attention_with(unchanged, unsqueeze_dim=1), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_layers_that_use_what_they_rotated(change: str) -> None:
    model = make_model("llama", num_hidden_layers=3)
    kind, passed_on = CHANGES[change]
    model.model.layers[1].self_attn.__class__ = kind
    assert [layer.passes_on_rotated for layer in trace(model).attention] == [True, passed_on, True]
    assert not any("forward" in vars(module) for module in model.modules()), "the model is as it was"


@pytest.mark.parametrize("family", TURNING)
def test_families_pass_on_what_they_rotated(family: str) -> None:
    expected = family != "gpt2"  # GPT-OSS does, but its rotation is not ours
    assert {layer.passes_on_rotated for layer in trace(make_model(family)).attention} == {expected}


@torch.inference_mode()
def test_a_layer_that_reads_unfilled_memory_is_rejected() -> None:
    """The trace finds such layers. If one was missed, the step fails and computes nothing from it."""
    model = make_model("llama")
    layer = CHANGES["scaled queries"][0](model.config, 0)
    rotary.fuse(layer, passes_on=True)
    context = ForwardContext()
    attach(layer, AttentionState(context, LayerCache(9, 2, 8, 8, torch.float32, torch.device("cpu"))))
    model.set_attn_implementation("loragate_paged")
    rows = torch.arange(3)
    batch = StepBatch(rows, rows, rows + 1, None, (), (), rows[-1:], ())
    angles = torch.ones(1, 3, 8)
    with context.running(batch), pytest.raises(AssertionError, match="before they were rotated"):
        layer(torch.randn(1, 3, 32), (angles, angles))
