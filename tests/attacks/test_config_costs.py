"""What a config of less than a megabyte may cost the gateway's interpreter, which all tenants share."""

import io
import json
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.planner import plan_adapter
from loragate.peft_format.safetensors.header import read_header

MANY = 60_000
NAMES = [
    f"model.layers.{layer}.{module}"
    for layer in range(80)
    for module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
]
LAYOUT = BaseLayout("llama", 80, {name: TargetModule(name, ModuleKind.LINEAR, 4, 4) for name in NAMES})
TENSORS = save({"x": np.zeros(1, np.float32)})
PLAIN: dict[str, Any] = {"peft_type": "LORA", "target_modules": ["q_proj", "v_proj"]}
CASES: dict[str, dict[str, Any]] = {
    "layers_pattern": {"layers_to_transform": [79], "layers_pattern": [f"l{n}" for n in range(MANY)]},
    "64 of layers_pattern": {
        "layers_to_transform": [79],
        "layers_pattern": [f"l{n}" for n in range(64)],
    },
    "layers_to_transform": {"layers_to_transform": list(range(MANY))},
    "rank_pattern": {"rank_pattern": {f"p{n}": 8 for n in range(MANY)}},
    "rank_pattern with expressions": {"rank_pattern": {f"p{n}.*": 8 for n in range(MANY)}},
    "alpha_pattern": {"alpha_pattern": {f"p{n}": 8 for n in range(MANY)}},
    "target_modules": {"target_modules": ["q_proj", *(f"p{n}" for n in range(MANY))]},
    "exclude_modules": {"exclude_modules": [f"p{n}" for n in range(MANY)]},
    "modules_to_save": {"modules_to_save": [f"p{n}" for n in range(MANY)]},
    "target_parameters": {"target_parameters": [f"p{n}" for n in range(MANY)]},
    "alora_invocation_tokens": {"alora_invocation_tokens": list(range(MANY))},
    "trainable_token_indices": {"trainable_token_indices": list(range(MANY))},
}


@pytest.mark.parametrize("case", CASES)
def test_configs_full_of_patterns_cost_little(case: str) -> None:
    raw = json.dumps(PLAIN | CASES[case]).encode()
    assert len(raw) < 1 << 20
    header = read_header(io.BytesIO(TENSORS), len(TENSORS))
    started = time.process_time()
    with suppress(AdapterRejected):
        plan_adapter(parse_config(raw), header, LAYOUT)
    assert time.process_time() - started < 2.5


def test_more_lists_of_layers_than_any_model_has_are_rejected_by_name() -> None:
    raw = json.dumps(PLAIN | CASES["layers_pattern"]).encode()
    with pytest.raises(AdapterRejected, match="at most 64 names") as rejected:
        parse_config(raw)
    assert rejected.value.param == "adapter_config.json: layers_pattern"
