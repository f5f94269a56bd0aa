"""Mixtures of experts in the layout of transformers 4: names and tensors that PEFT converts, read directly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import LoraConfig
from peft.utils import transformers_weight_conversion as conversion
from peft_outputs import output_by_peft, output_by_plan, read
from safetensors.torch import load, save
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan import mixture
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import SplitFactors

EXPERTS, LAYERS, HIDDEN = 3, 3, 32
FAMILIES = {
    "mixtral": ("block_sparse_moe", {"w1": (48, 32), "w2": (32, 48), "w3": (48, 32)}),
    "qwen3_moe": ("mlp", {"gate_proj": (24, 32), "up_proj": (24, 32), "down_proj": (32, 24)}),
}

pytestmark = pytest.mark.filterwarnings("ignore")

BaseModel = Callable[[str], transformers.PreTrainedModel]


def old_tensors(model_type: str, rank: int) -> dict[str, torch.Tensor]:
    """Return a random pair for each linear of each expert, and for the router."""
    torch.manual_seed(2)
    block, linears = FAMILIES[model_type]
    tensors = {}

    def add(layer: int, name: str, out: int, inputs: int) -> None:
        path = f"base_model.model.model.layers.{layer}.{name}"
        tensors[f"{path}.lora_A.weight"] = 0.3 * torch.randn(rank, inputs)
        tensors[f"{path}.lora_B.weight"] = 0.3 * torch.randn(out, rank)

    for layer in range(LAYERS):
        add(layer, f"{block}.gate", EXPERTS, HIDDEN)
        add(layer, "self_attn.q_proj", HIDDEN, HIDDEN)
        for expert in range(EXPERTS):
            for linear, (out, inputs) in linears.items():
                add(layer, f"{block}.experts.{expert}.{linear}", out, inputs)
    return tensors


@pytest.fixture
def make_old(make_adapter: Any) -> Callable[..., Any]:
    """Creates an upload in the layout of transformers 4, with some tensors changed."""

    def make(model_type: str, changed: dict[str, torch.Tensor | None] | None = None, **fields: object) -> Any:
        made = make_adapter(model_type, target_modules=["q_proj"])
        targets = ["q_proj", "gate", *FAMILIES[model_type][1]]
        config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": targets} | fields
        tensors = {**old_tensors(model_type, 4), **(changed or {})}
        raw = save({name: tensor for name, tensor in tensors.items() if tensor is not None})
        return type(made)(json.dumps(config).encode(), raw, made.layout)

    return make


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("fields", [{}, {"use_rslora": True}, {"target_modules": "all-linear"}], ids=str)
def test_one_linear_per_expert_computes_the_same_as_peft(
    make_old: Any, base_model: BaseModel, tmp_path: Path, model_type: str, fields: dict[str, Any]
) -> None:
    upload = make_old(model_type, **fields)
    if "target_modules" in fields:  # all-linear includes the other attention modules too
        upload = with_attention(upload)
    plan = read(upload)

    assert isinstance(plan.parameters["model.layers.0.mlp.experts.gate_up_proj"].factors, SplitFactors)
    assert plan.parameters["model.layers.0.mlp.experts.gate_up_proj"].rank == 8
    expected = output_by_peft(upload, base_model(model_type), tmp_path)
    torch.testing.assert_close(output_by_plan(plan, upload, base_model(model_type)), expected, rtol=1e-9, atol=1e-9)


def with_attention(upload: Any) -> Any:
    tensors = load(upload.tensors)
    for name, module in upload.layout.modules.items():
        if ".self_attn." in name and not name.endswith(("q_proj", "norm")):
            path = f"base_model.model.{name}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(4, module.in_features)
            tensors[f"{path}.lora_B.weight"] = torch.randn(module.out_features, 4)
    return type(upload)(upload.config, save(tensors), upload.layout)


@pytest.mark.parametrize(
    ("changed", "fields", "param"),
    [
        ({}, {"target_modules": ["w1", "w2"]}, "adapter_config.json: target_modules"),
        ({}, {"rank_pattern": {"w1": 8}, "r": 3}, "adapter_model.safetensors: {0}.mlp.gate.lora_A.weight"),
        (
            {"base_model.model.model.layers.1.block_sparse_moe.experts.2.w3.lora_B.weight": None},
            {},
            "adapter_model.safetensors: base_model.model.model.layers.1.mlp.experts.2.w3.lora_B.weight",
        ),
        (
            {"base_model.model.model.layers.1.block_sparse_moe.experts.3.w3.lora_B.weight": torch.ones(48, 4)},
            {},
            "adapter_model.safetensors: base_model.model.model.layers.1.mlp.experts.3.w3.lora_B.weight",
        ),
        (
            {"base_model.model.model.layers.1.mlp.experts.2.w3.lora_B.weight": torch.ones(48, 4)},
            {},
            "adapter_model.safetensors: base_model.model.model.layers.1.mlp.experts.2.w3.lora_B.weight",
        ),
        (
            {},
            {"target_modules": ["q_proj", "gate"]},
            "adapter_model.safetensors: {0}.mlp.experts.0.w1.lora_A.weight",
        ),
    ],
    ids=["half a fusion", "rank", "missing", "no such expert", "in both spellings", "not targeted"],
)
def test_experts_that_do_not_fit_are_rejected(
    make_old: Any, changed: dict[str, torch.Tensor | None], fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(AdapterRejected) as caught:
        read(make_old("mixtral", changed, **fields))

    assert caught.value.param == param.format("base_model.model.model.layers.0")


def test_the_families_are_those_that_peft_converts() -> None:
    names = {"mixtral": mixture._MIXTRAL, "qwen2_moe": mixture._QWEN}
    by_peft = {
        model_type: names[pattern]
        for model_type, pattern in conversion._MODEL_TO_CONVERSION_PATTERN.items()
        if pattern in names and model_type.islower() and get_checkpoint_conversion_mapping(model_type) is not None
    }

    assert by_peft == mixture._FAMILIES
    for pattern, family in names.items():
        assert conversion._MOE_TARGET_MODULE_MAPPING[pattern] == family.parameters
        assert conversion._MOE_FUSED_TARGETS[pattern] == {"gate_up_proj": list(family.branches)}


@pytest.mark.parametrize(
    "targets", ["all-linear", r".*\.(w1|w3)", r"model\.layers\.\d\.(self_attn|mlp\.experts)\.\w+_proj"]
)
def test_a_pattern_becomes_what_peft_makes_of_it(base_model: BaseModel, make_adapter: Any, targets: str) -> None:
    """The oracle is PEFT's own conversion, run on the same config; its patterns come in the same order."""
    layout: BaseLayout = make_adapter("mixtral", target_modules=["q_proj"]).layout
    oracle = LoraConfig(target_modules=targets, r=4, rank_pattern={"q_proj": 2})
    conversion.convert_peft_config_for_transformers(oracle, base_model("mixtral"), None)

    raw = {"peft_type": "LORA", "target_modules": targets, "r": 4, "rank_pattern": {"q_proj": 2}}
    config = mixture.converted(parse_config(json.dumps(raw).encode()), layout, Budget())

    assert set(config.target_modules) == oracle.target_modules
    assert set(config.target_parameters) == oracle.target_parameters
    assert list(config.rank_pattern) == list(oracle.rank_pattern.items())
    assert list(config.alpha_pattern) == list(oracle.alpha_pattern.items())
