"""Values that are finite and yet too large for the served dtype."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from peft_outputs import read
from safetensors.numpy import load, save

from loragate.peft_format.errors import AdapterRejected

PREFIX = "base_model.model.model.layers.0.self_attn.q_proj"
A, B = f"{PREFIX}.lora_A.weight", f"{PREFIX}.lora_B.weight"


def filled(upload: Any, dtype: str = "float32", **values: float) -> Any:
    """Check a file whose A or B is full of one number, in float32, for a model that is served in `dtype`."""
    tensors = load(upload.tensors)
    for half, value in values.items():
        name = f"{PREFIX}.lora_{half}.weight"
        tensors[name] = np.full(tensors[name].shape, value, np.float32)
    return replace(upload, tensors=save(tensors), layout=replace(upload.layout, dtype=dtype))


# The adapter has the rank 4 and the scaling 2, so that B·A is up to 8 · max|A| · max|B|.
@pytest.mark.parametrize(
    ("dtype", "values", "named"),
    [
        ("float32", {"B": 2e38}, B),
        ("float32", {"A": 1e19, "B": 4e18}, None),
        ("float32", {"A": 1e20, "B": -1e18}, B),
        ("float32", {"A": 3.4e38, "B": 0.0}, None),
        ("float32", {"A": -3.4e38, "B": 1e-3}, None),
        ("bfloat16", {"A": 3.4e38, "B": 0.0}, A),
        ("bfloat16", {"A": 3.3e38, "B": 0.0}, None),
        ("float16", {"A": 65504.0, "B": 0.0}, None),
        ("float16", {"A": -65505.0, "B": 0.0}, A),
        ("float16", {"A": 100.0, "B": 80.0}, None),
        ("float16", {"A": 100.0, "B": 82.0}, B),
        ("float16", {"A": 1e-9, "B": 40_000.0}, B),
        ("float32", {"A": 1e-45, "B": 1e-45}, None),
    ],
)
def test_values_too_large_for_the_served_dtype_are_named(
    upload: Any, dtype: str, values: dict[str, float], named: str | None
) -> None:
    changed = filled(upload, dtype, **values)
    if named is None:
        assert read(changed).modules
        return
    with pytest.raises(AdapterRejected, match=dtype) as caught:
        read(changed)
    assert caught.value.param == f"adapter_model.safetensors: {named}"


def test_a_negative_scaling_counts_as_much(upload: Any) -> None:
    with pytest.raises(AdapterRejected, match="with the scaling -2 in it"):
        read(filled(upload, B=2e38).edited(lora_alpha=-8))


def test_a_scaling_of_zero_multiplies_nothing(upload: Any) -> None:
    assert read(filled(upload, A=3e38, B=3e38).edited(lora_alpha=0)).modules
