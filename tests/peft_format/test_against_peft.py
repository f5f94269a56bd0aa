"""The oracle is PEFT: what it wrapped, with which rank and scaling, and which weights it saved."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import peft
import pytest
import torch

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.read import read_adapter
from loragate.peft_format.safetensors.header import TensorSpec

LLAMA_VARIANTS: dict[str, dict[str, Any]] = {
    "suffixes": {"target_modules": ["q_proj", "v_proj"]},
    "dotted suffix": {"target_modules": ["self_attn.o_proj", "down_proj"]},
    "suffix is not a substring": {"target_modules": ["proj", "q_proj"]},
    "full name": {"target_modules": ["model.layers.1.mlp.up_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "All-Linear": {"target_modules": "All-Linear"},
    "head": {"target_modules": ["lm_head", "q_proj"]},
    "regex": {"target_modules": r".*\.(q|k)_proj"},
    "regex of one layer": {"target_modules": r"model\.layers\.[02]\.mlp\.\w+_proj"},
    "regex with lazy parts": {
        "target_modules": r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|down_proj).*?)"
        r"|(?:\bmodel\.layers\.[\d]{1,}\.mlp\.up_proj)"
    },
    "regex with $": {"target_modules": ".*decoder.*(SelfAttention|EncDecAttention).*(q|v)$|.*(gate|up)_proj$"},
    "exclude names": {"target_modules": "all-linear", "exclude_modules": ["q_proj", "mlp.down_proj"]},
    "exclude regex": {"target_modules": ["q_proj", "v_proj"], "exclude_modules": r".*layers\.1\..*"},
    "one layer": {"target_modules": ["q_proj"], "layers_to_transform": 1},
    "layer 0": {"target_modules": ["q_proj"], "layers_to_transform": 0},
    "layers": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [0, 2]},
    "no layers": {"target_modules": ["q_proj"], "layers_to_transform": []},
    "layers by pattern": {
        "target_modules": ["q_proj"],
        "layers_to_transform": [1],
        "layers_pattern": "layers",
    },
    "layers by dotted pattern": {
        "target_modules": ["q_proj"],
        "layers_to_transform": [1],
        "layers_pattern": "model.layers",
    },
    "layers by patterns": {
        "target_modules": ["q_proj"],
        "layers_to_transform": [1, 2],
        "layers_pattern": ["h", "layers"],
    },
    "full name passes the layer filter": {
        "target_modules": ["model.layers.2.self_attn.k_proj", "q_proj"],
        "layers_to_transform": [0],
    },
    "a name that matches nothing": {"target_modules": ["embed_out", "q_proj"]},
    "rank patterns": {
        "target_modules": ["q_proj", "v_proj", "up_proj"],
        "rank_pattern": {r"layers\.1\..*": 3, "model.layers.2.mlp.up_proj": 5, "q_proj": 2},
    },
    "the first rank pattern wins": {
        "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {r".*1.*_proj": 7, "q_proj": 2, "^model.layers.0.self_attn.v_proj": 3},
    },
    "anchored rank patterns": {
        "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {"^layers.0.self_attn.q_proj": 2, "^model.layers.0.self_attn.q_proj$": 3, "q.proj": 6},
    },
    "alpha patterns": {
        "target_modules": ["q_proj", "v_proj"],
        "lora_alpha": 12,
        "alpha_pattern": {"v_proj": 3, r"layers\.[01]\.self_attn\.q_proj": 0.5},
    },
    "both": {"target_modules": "all-linear", "rank_pattern": {"mlp.*": 3}, "alpha_pattern": {"mlp.*": 24}},
    "rank-stabilised": {"target_modules": ["q_proj"], "use_rslora": True, "rank_pattern": {".*1.*q_proj": 5}},
    "bias of B": {"target_modules": ["q_proj", "down_proj"], "lora_bias": True},
    "gaussian": {"target_modules": ["q_proj"], "init_lora_weights": "gaussian", "lora_dropout": 0.1},
    "orthogonal": {"target_modules": ["q_proj"], "init_lora_weights": "orthogonal"},
    "mica": {"target_modules": ["q_proj"], "init_lora_weights": "mica"},
    "eva": {"target_modules": ["q_proj"], "init_lora_weights": "eva"},
    "no task type": {"target_modules": ["q_proj"], "task_type": None},
}
OTHERS: dict[str, list[dict[str, Any]]] = {
    "tied_llama": [{"target_modules": "all-linear"}, {"target_modules": ["q_proj", "down_proj"]}],
    "gpt2": [
        {"target_modules": ["c_attn"], "fan_in_fan_out": True},
        {"target_modules": ["c_attn", "c_proj"], "layers_to_transform": [0], "layers_pattern": "h"},
        {"target_modules": "all-linear"},
        {"target_modules": ["attn.c_proj", "lm_head"], "lora_bias": True},
    ],
    "opt": [
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj", "fc1"], "layers_to_transform": [2]},
    ],
    "gpt_neox": [
        {"target_modules": "all-linear"},
        {"target_modules": ["query_key_value", "embed_out"]},
        {"target_modules": ["dense_h_to_4h", "dense"], "rank_pattern": {"dense": 2}},
    ],
    "phi3": [{"target_modules": "all-linear"}, {"target_modules": ["qkv_proj", "gate_up_proj"]}],
}
CASES = [
    *(pytest.param("llama", fields, id=f"llama-{name}") for name, fields in LLAMA_VARIANTS.items()),
    *(
        pytest.param(kind, fields, id=f"{kind}-{number}")
        for kind, variants in OTHERS.items()
        for number, fields in enumerate(variants)
    ),
]


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # PEFT's warning about patterns that match nothing

MakeAdapter = Callable[..., Any]
BLOCKS = peft.tuners.lora.config.BdLoraConfig(target_modules_bd_b=["q_proj"], nblocks=2)
ReadByPeft = Callable[..., dict[str, Any]]


def scalings(modules: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    return {name: (module.rank, module.scaling) for name, module in modules.items()}


def read(upload: Any) -> AdapterPlan:
    return read_adapter(upload.config, upload.file, len(upload.tensors), upload.layout).plan


@pytest.mark.parametrize(("kind", "fields"), CASES)
def test_plan_is_what_peft_wraps(
    make_adapter: MakeAdapter, read_by_peft: ReadByPeft, kind: str, fields: dict[str, Any]
) -> None:
    upload = make_adapter(kind, **{"r": 4, "lora_alpha": 16, **fields})

    plan, oracle = read(upload), read_by_peft(kind, upload)

    assert scalings(plan.modules) == scalings(oracle)
    assert plan.max_rank == max(layer.rank for layer in oracle.values())

    def values(spec: TensorSpec | None) -> np.ndarray | None:
        if spec is None:
            return None
        return np.frombuffer(upload.tensors[spec.begin : spec.end], np.float32).reshape(spec.shape)

    for name, layer in oracle.items():
        module = plan.modules[name]
        np.testing.assert_array_equal(values(module.lora_a), layer.a)
        np.testing.assert_array_equal(values(module.lora_b), layer.b)
        np.testing.assert_array_equal(values(module.bias), layer.bias)


@pytest.mark.parametrize("fields", LLAMA_VARIANTS.values(), ids=LLAMA_VARIANTS.keys())
def test_the_authors_own_target_specification_reads_the_same(
    make_adapter: MakeAdapter, read_by_peft: ReadByPeft, fields: dict[str, Any]
) -> None:
    """PEFT saves the resolved value ("all-linear" as a list of names); a file may hold the original as well."""
    upload = make_adapter("llama", **{"r": 4, "lora_alpha": 16, **fields}).edited(**fields)

    assert scalings(read(upload).modules) == scalings(read_by_peft("llama", upload))


def test_a_target_that_matches_nothing_is_reported(make_adapter: MakeAdapter) -> None:
    upload = make_adapter("gpt_neox", target_modules=["query_key_value", "embed_out"])

    assert [("embed_out" in warning) for warning in read(upload).warnings] == [True]


def test_a_pattern_that_matches_nothing_is_reported(make_adapter: MakeAdapter) -> None:
    upload = make_adapter("llama", target_modules=["q_proj"], rank_pattern={"k_proj": 2, ".*1.*q_proj": 3})

    assert [("k_proj" in warning) for warning in read(upload).warnings] == [True]


@pytest.mark.parametrize(("dtype", "stored"), [(torch.float16, "F16"), (torch.bfloat16, "BF16")])
def test_half_precision_is_served(make_adapter: MakeAdapter, dtype: torch.dtype, stored: str) -> None:
    upload = make_adapter("llama", dtype, target_modules=["q_proj"])

    assert {spec.dtype for module in read(upload).modules.values() for spec in module.tensors} == {stored}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"layer_replication": [(0, 2), (1, 3)]}, "layer_replication"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"init_lora_weights": "olora"}, "init_lora_weights"),
        ({"kasa_config": peft.tuners.lora.config.KasaConfig()}, "kasa_config"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_never_served_is_rejected_by_its_field(
    make_adapter: MakeAdapter, fields: dict[str, Any], param: str
) -> None:
    upload = make_adapter("llama", **{"target_modules": ["q_proj"], **fields})

    with pytest.raises(AdapterRejected) as caught:
        read(upload)

    assert caught.value.param == f"adapter_config.json: {param}"


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        ("llama", {"use_dora": True}, "use_dora"),
        ("llama", {"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ("llama", {"trainable_token_indices": [1, 2]}, "trainable_token_indices"),
        ("llama", {"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ("qwen2", {"bias": "lora_only"}, "bias"),
        ("llama", {"use_bdlora": BLOCKS}, "use_bdlora"),
        ("llama", {"target_modules": ["q_proj", "embed_tokens"]}, "target_modules"),
        ("mixtral", {"target_parameters": ["gate_up_proj"]}, "target_parameters"),
        ("mixtral", {"target_modules": "all-linear"}, "target_parameters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_does_not_serve_is_rejected_by_its_field(
    make_adapter: MakeAdapter, kind: str, fields: dict[str, Any], param: str
) -> None:
    upload = make_adapter(kind, **{"target_modules": ["q_proj"], **fields})
    layout = replace(upload.layout, serves=frozenset())

    with pytest.raises(AdapterRejected) as caught:
        read(replace(upload, layout=layout))

    assert caught.value.param == f"adapter_config.json: {param}"
    assert read(upload).kinds


@pytest.mark.parametrize(
    ("fields", "tensor"),
    [
        ({"use_dora": True}, "lora_magnitude_vector"),
        ({"modules_to_save": ["lm_head"]}, "lm_head.weight"),
        ({"trainable_token_indices": [1, 2]}, "trainable_tokens"),
    ],
)
def test_tensors_that_contradict_the_config_are_rejected_by_name(
    make_adapter: MakeAdapter, fields: dict[str, Any], tensor: str
) -> None:
    hidden = {"use_dora": False, "modules_to_save": None, "trainable_token_indices": None}
    upload = make_adapter("llama", target_modules=["q_proj"], **fields).edited(**hidden)
    layout = replace(upload.layout, serves=frozenset(AdapterKind) - {AdapterKind.BASE_COPIES})

    with pytest.raises(AdapterRejected) as caught:
        read(replace(upload, layout=layout))

    assert tensor in caught.value.param
