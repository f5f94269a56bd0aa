"""Checkpoints that are saved quantized: their tokens are PEFT's on the same checkpoint, or they are rejected."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from mixed_batches import check_mixed_batch, load
from moe_adapters import ADAPTERS
from quantized_checkpoints import save_compressed, save_compressed_mixture, save_fp8, save_mxfp4, set_quantization
from thinned import thinned
from tiny_models import add_adapter, make_model
from torch import nn
from transformers import CompressedTensorsConfig, FineGrainedFP8Config, PreTrainedModel
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, replace_with_fp8_linear
from transformers.utils.quantization_config import Mxfp4Config

from loragate.engine.layers.lora_linear import weight_and_bias
from loragate.engine.local import LocalEngine
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.quantized_loading import QuantizationRejected, check_saved, loading_options

CPU, GPU = torch.device("cpu"), torch.device("cuda")
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
_INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
_FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
_PER_TOKEN = {"strategy": "token", "dynamic": True}
_W8A8 = {"weights": _INT8, "input_activations": _INT8 | _PER_TOKEN}
SCHEMES: dict[str, list[dict[str, Any]]] = {
    "W4A16": [{"weights": _INT4}],
    "W4A16 asymmetric": [{"weights": _INT4 | {"symmetric": False}}],
    "W8A16": [{"weights": _INT8}],
    "W8A8": [_W8A8],
    "FP8": [{"weights": _FLOAT8 | {"strategy": "channel"}, "input_activations": _FLOAT8 | _PER_TOKEN}],
    "FP8 static": [{"weights": _FLOAT8, "input_activations": _FLOAT8}],
    "mixed": [_W8A8 | {"targets": ["re:.*self_attn.*"]}, {"weights": _INT4, "targets": ["re:.*mlp.*"]}],
}
"""Fields of compressed-tensors' QuantizationSchemes by the name under which such checkpoints are published."""


@pytest.fixture(scope="module")
def compressed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the base model saved in a scheme, and save it the first time."""
    root = tmp_path_factory.mktemp("compressed")

    def compressed(scheme: str) -> Path:
        if not (root / scheme).exists():
            save_compressed(load(folder / "base"), root / scheme, *SCHEMES[scheme])
        return root / scheme

    return compressed


@pytest.mark.parametrize("scheme", thinned(SCHEMES, fast={"W4A16 asymmetric", "FP8 static", "mixed"}))
def test_compressed_tensors(
    scheme: str,
    compressed: Callable[[str], Path],
    adapters: Mapping[str, Path],
    start: Callable[..., LocalEngine],
    capfd: pytest.CaptureFixture[str],
) -> None:
    asymmetric = {"quantization_config": CompressedTensorsConfig(dequantize=True)} if "asymmetric" in scheme else {}
    oracle = load(compressed(scheme), **asymmetric)
    oracle(torch.tensor([[1]]))  # which unpacks the weights, for PEFT
    capfd.readouterr()
    engine = start(compressed(scheme))
    assert "Compressing model" not in capfd.readouterr().err
    rounds_inputs = any("input_activations" in each for each in SCHEMES[scheme])
    assert engine.loaded.base.is_quantized == rounds_inputs
    check_mixed_batch(engine, oracle, adapters, tie=0.2 if rounds_inputs else 0.0)


@pytest.mark.parametrize("scheme", ["W8A8", "FP8", "mixed"])
def test_a_rows_scale_does_not_depend_on_its_neighbours(
    scheme: str, compressed: Callable[[str], Path], start: Callable[..., LocalEngine]
) -> None:
    """It would if rows were passed as a matrix: compressed-tensors computes one scale for it."""
    for group in start(compressed(scheme)).loaded.base.groups:
        row = torch.randn(1, group.in_features)
        large = torch.cat([row, torch.full_like(row, 1000.0)])
        assert torch.allclose(group.linear(large)[:1], group.linear(row), rtol=1e-4, atol=1e-4), group.members


@pytest.mark.parametrize("scheme", ["FP8", "FP8 static"])
def test_rounded_inputs_pass_the_check_at_load_in_bfloat16(
    scheme: str, compressed: Callable[[str], Path], start: Callable[..., LocalEngine]
) -> None:
    """Two roundings add up: single rows differ by more than bfloat16 alone explains, in transformers too."""
    assert start(compressed(scheme), dtype="bfloat16").loaded.manifest.dtype == "bfloat16"


def adapters_of_mixture(model: PreTrainedModel, root: Path) -> dict[str, Path]:
    return {
        name: add_adapter(model, root / name, seed, **ADAPTERS[name](model))
        for seed, name in enumerate(("attention", "experts", "router"))
    }


def test_a_mixture_in_compressed_tensors(tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = make_model("qwen3_moe", hidden_size=64, intermediate_size=128, moe_intermediate_size=32)
    adapters = adapters_of_mixture(model, tmp_path)
    save_compressed_mixture(model, tmp_path / "base", _INT4)
    oracle = load(tmp_path / "base", quantization_config=CompressedTensorsConfig(dequantize=True))
    experts = [each.model.layers[1].mlp.experts.down_proj for each in (oracle, model)]
    assert 0 < float((experts[0] - experts[1]).abs().max()) < 0.2
    check_mixed_batch(start(tmp_path / "base", adapters), oracle, adapters)


def test_mxfp4(tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = make_model("gpt_oss", hidden_size=64, intermediate_size=96)
    adapters = adapters_of_mixture(model, tmp_path)
    dense = save_mxfp4(model, tmp_path / "base")
    oracle = load(tmp_path / "base", quantization_config=Mxfp4Config(dequantize=True))
    for name, weights in dense.items():
        assert torch.equal(oracle.get_parameter(name), weights), name
    check_mixed_batch(start(tmp_path / "base", adapters), oracle, adapters)


def test_fp8_on_a_cpu(
    folder: Path, tmp_path: Path, adapters: Mapping[str, Path], start: Callable[..., LocalEngine]
) -> None:
    save_fp8(load(folder / "base"), tmp_path / "fp8")
    oracle = load(tmp_path / "fp8", quantization_config=FineGrainedFP8Config(dequantize=True))
    assert not torch.equal(
        oracle.model.layers[0].mlp.up_proj.weight, load(folder / "base").model.layers[0].mlp.up_proj.weight
    )
    check_mixed_batch(start(tmp_path / "fp8"), oracle, adapters)


def test_the_weights_of_linears_in_fp8_are_read_for_dora() -> None:
    model = make_model("llama", hidden_size=64, intermediate_size=80)
    replace_with_fp8_linear(model, quantization_config=FineGrainedFP8Config(weight_block_size=(16, 16)))
    linear: Any = model.model.layers[0].mlp.up_proj
    linear.weight = nn.Parameter(torch.randn(80, 64).to(torch.float8_e4m3fn))
    linear.weight_scale_inv = nn.Parameter(torch.rand(5, 4))
    expected = Fp8Dequantize(None)._dequantize_one(linear.weight.data, linear.weight_scale_inv.data)
    assert torch.equal(weight_and_bias(linear)[0], expected)


COMPRESSED = {"quant_method": "compressed-tensors", "quantization_status": "compressed"}
BY_BATCH = {"config_groups": {"group_0": {"input_activations": {"dynamic": True, "strategy": "tensor"}}}}
REJECTED: list[tuple[dict[str, Any], torch.device, str, str]] = [
    ({"quant_method": "gptq"}, CPU, "", r"gptq, which is not supported.*mxfp4.*engine\.quantization=nf4"),
    ({"quant_method": "awq"}, GPU, "", "awq, which is not supported"),
    ({"quant_method": "fp8"}, GPU, "kernels", r"fp8 on a GPU needs the package kernels \(pip install kernels\)"),
    (
        {"quant_method": "fp8"},
        CPU,
        "accelerate",
        r"accelerate, which is not installed \(pip install 'loragate\[quantized",
    ),
    (COMPRESSED, CPU, "compressed_tensors", r"need compressed_tensors.*pip install 'loragate\[quantized\]'"),
    (COMPRESSED | {"quantization_status": "frozen"}, CPU, "", "quantization_status is frozen"),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8}}, CPU, "", "kv_cache_scheme, which is not supported"),
    (COMPRESSED | {"transform_config": {"config_groups": {}}}, CPU, "", "transform_config, which is not supported"),
    (COMPRESSED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, CPU, "", "sparsity_config, which"),
    (COMPRESSED | BY_BATCH, CPU, "", "input_activations have one dynamic scale per tensor.*would change another's"),
]


@pytest.mark.parametrize(("saved", "device", "missing", "words"), REJECTED)
def test_what_cannot_be_served_is_rejected_with_what_to_do(
    saved: dict[str, Any], device: torch.device, missing: str, words: str
) -> None:
    with pytest.raises(QuantizationRejected, match=words):
        check_saved(saved, "none", device, lambda package: package != missing)


@pytest.mark.parametrize(
    ("saved", "device"),
    [
        ({"quant_method": "fp8"}, CPU),
        ({"quant_method": "mxfp4"}, GPU),
        ({"load_in_4bit": True}, CPU),
        (COMPRESSED | {"sparsity_config": {"format": "dense"}, "transform_config": {}}, CPU),
    ],
)
def test_what_can_be_served_without_kernels_is_accepted(saved: dict[str, Any], device: torch.device) -> None:
    check_saved(saved, "none", device, lambda package: package != "kernels")


@pytest.mark.parametrize("method", ["bitsandbytes", "mxfp4", "fp8", "compressed-tensors"])
def test_quantized_weights_are_loaded_onto_their_device(method: str) -> None:
    saved = COMPRESSED | {"quant_method": method}
    assert loading_options(saved, "none", GPU, lambda package: True)["device_map"] == {"": GPU}


def test_mxfp4_is_dequantized_also_where_its_kernels_are_installed() -> None:
    options = loading_options({"quant_method": "mxfp4"}, "none", GPU, lambda package: True)
    assert options["quantization_config"].dequantize


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_fp8_is_dequantized_on_a_cpu_only(device: torch.device) -> None:
    saved = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
    config = loading_options(saved, "none", device, lambda package: True).get("quantization_config")
    assert (config is not None) == (device == CPU)
    assert config is None or (config.dequantize, config.modules_to_not_convert) == (True, ["lm_head"])


def test_a_rejected_checkpoint_is_named(folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    load(folder / "base").save_pretrained(tmp_path / "gptq")
    set_quantization(tmp_path / "gptq", {"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelRejected, match=r"gptq cannot be served: .*gptq, which is not supported"):
        start(tmp_path / "gptq")
