"""What an adapter may change according to the engine's manifest, compared with the model's own parameters."""

from math import prod

import pytest
from tiny_models import CONFIGS, make_model
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from loragate.engine.model.manifest import targets
from loragate.peft_format.plan.layout import ModuleKind

_SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "head_dim": 8,
}
MIXTURES = {
    "mixtral": _SIZES | {"num_local_experts": 3},
    "qwen3_moe": _SIZES | {"num_experts": 3, "moe_intermediate_size": 24},
    "gpt_oss": _SIZES | {"num_local_experts": 3},
}


def mixture(model_type: str) -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **MIXTURES[model_type]))


@pytest.mark.parametrize("model_type", [*CONFIGS, *MIXTURES])
def test_every_parameter_belongs_to_one_part(model_type: str) -> None:
    model = mixture(model_type) if model_type in MIXTURES else make_model(model_type)
    found = targets(model)

    shapes = {f"{module.name}.weight": module.weight_shape for module in found.modules}
    shapes |= {f"{module.name}.bias": (module.out_features,) for module in found.modules if module.bias}
    shapes |= {parameter.path: parameter.shape for parameter in found.parameters}

    assert shapes == {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    assert sum(map(prod, shapes.values())) >= model.num_parameters()


def test_parameters_have_their_kind() -> None:
    gpt2, oss = targets(make_model("gpt2")), targets(mixture("gpt_oss"))
    kinds = {module.name: module.kind for module in gpt2.modules}

    assert (gpt2.input_embedding, gpt2.head) == ("transformer.wte", "lm_head")
    assert kinds["transformer.h.0.attn.c_attn"] is ModuleKind.CONV1D
    assert kinds["transformer.h.0.ln_1"] is ModuleKind.NORM
    assert kinds["transformer.wpe"] is ModuleKind.EMBEDDING
    assert [p.name for p in oss.parameters if p.module == "model.layers.0.mlp.experts"] == [
        *("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
    ]
    assert all(p.transposed for p in oss.parameters if p.module.endswith("experts"))
    assert not any(p.transposed for p in targets(mixture("mixtral")).parameters)
