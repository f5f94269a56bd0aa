"""Tensors against targets: exactly those that are needed, with exactly their shapes."""

import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.read import read_adapter

PREFIX = "base_model.model.model.layers.0.self_attn.q_proj"


def read(upload: Any, layout: BaseLayout | None = None) -> AdapterPlan:
    return read_adapter(upload.config, upload.file, len(upload.tensors), layout or upload.layout).plan


def changed(upload: Any, **tensors: np.ndarray | None) -> bytes:
    """Return the upload's file with tensors replaced, added (by whole name) or, for None, removed."""
    merged = {**load(upload.tensors), **tensors}
    return save({name: array for name, array in merged.items() if array is not None})


def rejection(upload: Any, **changes: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read(upload.edited(**changes) if changes else upload)
    return caught.value


def test_a_valid_adapter_is_planned(upload: Any) -> None:
    plan = read(upload)

    assert list(plan.modules) == [f"model.layers.{layer}.self_attn.q_proj" for layer in range(2)]
    assert plan.max_rank == 4
    assert plan.size_bytes == 2 * (4 * 8 * 4 + 6 * 4 * 2)
    assert plan.warnings == ()


@pytest.mark.parametrize(
    ("tensors", "named", "says"),
    [
        ({f"{PREFIX}.lora_A.weight": None}, f"{PREFIX}.lora_A.weight", "missing"),
        ({f"{PREFIX}.lora_B.weight": None}, f"{PREFIX}.lora_B.weight", "missing"),
        ({f"{PREFIX}.lora_A.weight": np.ones((8, 4), np.float32)}, f"{PREFIX}.lora_A.weight", "[4, 8]"),
        ({f"{PREFIX}.lora_A.weight": np.ones((2, 8), np.float32)}, f"{PREFIX}.lora_A.weight", "[4, 8]"),
        ({f"{PREFIX}.lora_B.weight": np.ones((4, 6), np.float32)}, f"{PREFIX}.lora_B.weight", "[6, 4]"),
        ({f"{PREFIX}.lora_B.weight": np.ones(24, np.float32)}, f"{PREFIX}.lora_B.weight", "[6, 4]"),
        ({f"{PREFIX}.lora_B.bias": np.ones(6, np.float32)}, f"{PREFIX}.lora_B.bias", "lora_bias"),
        (
            {"base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight": np.ones((4, 8), np.float32)},
            "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
            "does not select",
        ),
        (
            {"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((4, 96), np.float32)},
            "base_model.model.model.embed_tokens.lora_embedding_A",
            "embedding",
        ),
        (
            {"base_model.model.lm_head.base_layer.weight": np.ones((96, 8), np.float32)},
            "base_model.model.lm_head.base_layer.weight",
            "save_embedding_layers=False",
        ),
        (
            {f"{PREFIX}.lora_A.default.weight": np.ones((4, 8), np.float32)},
            f"{PREFIX}.lora_A.default.weight",
            "save_pretrained",
        ),
        (
            {"base_model.model.model.layers.0.mlp.experts.3.w1.lora_A.weight": np.ones((4, 8), np.float32)},
            "base_model.model.model.layers.0.mlp.experts.3.w1.lora_A.weight",
            "experts",
        ),
        (
            {"model.layers.0.self_attn.q_proj.weight": np.ones((6, 8), np.float32)},
            "model.layers.0.self_attn.q_proj.weight",
            "base_model.model.",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_rejected_by_name(
    upload: Any, tensors: dict[str, np.ndarray | None], named: str, says: str
) -> None:
    raw = changed(upload, **tensors)
    with pytest.raises(AdapterRejected) as caught:
        read(type(upload)(upload.config, raw, upload.layout))

    assert caught.value.param == f"adapter_model.safetensors: {named}"
    assert says in caught.value.message


def test_a_rank_above_the_engines_is_rejected(upload: Any) -> None:
    error = rejection(upload, r=17)

    assert error.param == "adapter_config.json: r"
    assert "16" in error.message


def test_a_rank_that_differs_from_the_tensors_is_rejected_by_the_tensor(upload: Any) -> None:
    assert rejection(upload, r=2).param == f"adapter_model.safetensors: {PREFIX}.lora_A.weight"


def test_a_target_without_tensors_is_rejected(upload: Any) -> None:
    assert "v_proj.lora_A" in rejection(upload, target_modules=["q_proj", "v_proj"]).param


def test_a_module_that_is_not_servable_is_rejected(upload: Any) -> None:
    error = rejection(upload, target_modules=["q_proj", "lm_head"])

    assert error.param == "adapter_config.json: target_modules"
    assert "lm_head" in error.message


def test_an_embedding_is_rejected(upload: Any) -> None:
    assert "embedding model.embed_tokens" in rejection(upload, target_modules=["q_proj", "embed_tokens"]).message


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": ["nothing"]},
        {"target_modules": "nothing"},
        {"exclude_modules": ".*"},
        {"layers_to_transform": [7]},
    ],
)
def test_a_config_that_selects_nothing_is_rejected(upload: Any, fields: dict[str, object]) -> None:
    error = rejection(upload, **fields)

    assert error.param == "adapter_config.json: target_modules"
    assert "tiny" in error.message


def test_a_missing_bias_is_rejected_by_name(upload: Any) -> None:
    assert rejection(upload, lora_bias=True).param == f"adapter_model.safetensors: {PREFIX}.lora_B.bias"


def test_names_that_match_nothing_are_reported_once(upload: Any) -> None:
    fields = {"target_modules": ["q_proj", "gate"], "exclude_modules": ["up"], "alpha_pattern": {"v_proj": 2}}

    warnings = read(upload.edited(**fields)).warnings

    assert [next(name for name in ("gate", "up", "v_proj") if f'"{name}"' in text) for text in warnings] == [
        "gate",
        "up",
        "v_proj",
    ]


def test_a_budget_covers_a_large_mixture_of_experts() -> None:
    """The work budget must not reject a pattern that people write, on the largest existing models."""
    names = [f"model.layers.{layer}.mlp.experts.{expert}.down_proj" for layer in range(61) for expert in range(256)]
    layout = BaseLayout("moe", 61, {name: TargetModule(name, ModuleKind.LINEAR, 8, 8) for name in names})
    tensors = {}
    for layer in range(61):
        prefix = f"base_model.model.model.layers.{layer}.mlp.experts.7.down_proj"
        tensors[f"{prefix}.lora_A.weight"] = np.ones((4, 8), np.float32)
        tensors[f"{prefix}.lora_B.weight"] = np.ones((8, 4), np.float32)
    config = {"peft_type": "LORA", "r": 4, "target_modules": r".*\.experts\.7\.(up|down|gate)_proj"}
    raw = save(tensors)

    plan = read_adapter(json.dumps(config).encode(), BytesIO(raw), len(raw), layout).plan

    assert len(plan.modules) == 61
