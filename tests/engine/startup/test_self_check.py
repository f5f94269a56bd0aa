"""Models that a packed batch would compute wrongly are capped or rejected, with the cause."""

from pathlib import Path
from typing import Any

import pytest
import torch
from thinned import thinned
from tiny_models import CONFIGS, make_model
from transformers import AutoConfig, AutoModelForCausalLM, BloomConfig, BloomForCausalLM, FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from loragate.engine.config import EngineConfig
from loragate.engine.layers import attention, experts
from loragate.engine.model.base_model import prepare
from loragate.engine.model.errors import ModelRejected
from loragate.engine.startup import self_check
from loragate.engine.startup.build import LoadedModel, load


def load_config(tmp_path: Path, model_type: str, dtype: str = "auto", **overrides: Any) -> LoadedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type] | overrides)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / "base")
    return load(engine_config(tmp_path, dtype=dtype))


def engine_config(tmp_path: Path, **fields: Any) -> EngineConfig:
    return EngineConfig(
        model=str(tmp_path / "base"), listen="", cache_dir=tmp_path / "cache", kv_cache_tokens=4096, threads=1, **fields
    )


def longrope(original: int) -> dict[str, Any]:
    half = CONFIGS["phi3"]["hidden_size"] // CONFIGS["phi3"]["num_attention_heads"] // 2
    return {
        "max_position_embeddings": 4 * original,
        "original_max_position_embeddings": original,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * half,
            "long_factor": [4.0 + i for i in range(half)],
            "original_max_position_embeddings": original,
        },
    }


def test_a_plain_model_is_served_without_limits(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, "llama")
    assert loaded.manifest.max_model_len == 512
    assert not loaded.manifest.notes


def test_longrope_is_capped_where_a_long_neighbour_would_change_tokens(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, "phi3", **longrope(512))
    assert loaded.manifest.max_model_len == 512
    assert "original_max_position_embeddings" in loaded.manifest.notes[0]


def test_a_long_sliding_window_is_served_beyond_the_window(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, "mistral", sliding_window=300)
    assert loaded.manifest.max_model_len == 512


def test_a_model_that_bypasses_the_interface_is_rejected(tmp_path: Path) -> None:
    config = BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)
    BloomForCausalLM(config).save_pretrained(tmp_path / "base")
    with pytest.raises(ModelRejected, match="BloomForCausalLM cannot be served"):
        load(engine_config(tmp_path))


@pytest.mark.parametrize(
    "model_type", thinned(sorted(CONFIGS), fast={"llama", "gemma3_text", "gpt2", "mixtral", "gpt_oss"})
)
def test_bfloat16_is_served(tmp_path: Path, model_type: str) -> None:
    assert load_config(tmp_path, model_type, "bfloat16").manifest.dtype == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrong_attention_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """The check compares the model's results and not only that it ran: it detects an off-by-one window."""
    decode = attention.decode_attention

    def off_by_one(query, cache, rows, options):  # type: ignore[no-untyped-def]
        return decode(query, cache, type(rows)(rows.token_places, (rows.lengths - 1).clamp(min=1)), options)

    monkeypatch.setattr(attention, "decode_attention", off_by_one)
    with pytest.raises(ModelRejected, match="logits differ from transformers'"):
        load_config(tmp_path, "llama", dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrong_experts_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Single positions of a mixture may differ by rounding, but a mistake is detected."""
    forward = experts.routed_experts

    def unweighted(module, x, chosen, weights):  # type: ignore[no-untyped-def]
        return forward(module, x, chosen, torch.full_like(weights, 1 / weights.shape[1]))

    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS, experts.IMPLEMENTATION, unweighted)
    with pytest.raises(ModelRejected, match="MixtralForCausalLM cannot be served"):
        load_config(tmp_path, "mixtral", dtype)


def test_a_models_own_linear_class_is_not_replaced() -> None:
    """Llama 4's router is a linear that returns two tensors."""
    sizes = CONFIGS["llama"] | {"head_dim": 8, "intermediate_size_mlp": 32, "num_local_experts": 4}
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama4_text", **sizes, interleave_moe_layer_step=1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    expected = self_check.reference(model, (1, 5, 17))
    assert self_check.errors(prepare(model.requires_grad_(False)), expected).max() < 1e-4


def test_experts_in_fp8_are_rejected() -> None:
    model = make_model("mixtral")
    replace_with_fp8_linear(model, quantization_config=FineGrainedFP8Config())
    with pytest.raises(ModelRejected, match="experts are quantized to fp8"):
        prepare(model)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    AutoConfig.for_model("llama", **CONFIGS["llama"]).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelRejected, match="safetensors"):
        load(engine_config(tmp_path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelRejected, match="there is no folder"):
        load(engine_config(tmp_path))


def test_a_context_longer_than_the_models_is_rejected(tmp_path: Path) -> None:
    load_config(tmp_path, "llama")
    with pytest.raises(ModelRejected, match="max_model_len"):
        load(engine_config(tmp_path, max_model_len=1024))


def test_the_digest_distinguishes_weights(tmp_path: Path) -> None:
    first = load_config(tmp_path, "llama").manifest.base_digest
    assert load(engine_config(tmp_path)).manifest.base_digest == first
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    model.save_pretrained(tmp_path / "base")
    assert load(engine_config(tmp_path)).manifest.base_digest != first


def test_the_makers_sampling_defaults_are_reported(tmp_path: Path) -> None:
    load_config(tmp_path, "llama")
    file = tmp_path / "base" / "generation_config.json"
    file.write_text('{"do_sample": true, "temperature": 0.6, "top_p": 0.9}')
    defaults = load(engine_config(tmp_path)).manifest.sampling_defaults
    assert (round(defaults.temperature, 3), round(defaults.top_p, 3), defaults.HasField("top_k")) == (0.6, 0.9, False)
    file.write_text('{"do_sample": false}')
    assert load(engine_config(tmp_path)).manifest.sampling_defaults.HasField("temperature")
