"""Architectures that are rejected by their config alone, with the cause, and relatives that are not."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from loragate.engine.config import EngineConfig
from loragate.engine.model.architecture import check_architecture
from loragate.engine.model.base_model import load_plain
from loragate.engine.model.errors import ModelRejected

RECURRENT = [
    "qwen3_next", "qwen3_5", "mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "falcon_h1", "granitemoehybrid",
    "nemotron_h", "recurrent_gemma", "zamba", "zamba2", "minimax", "olmo_hybrid", "kimi_linear", "rwkv", "xlstm",
]  # fmt: skip
IMAGES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava", "mistral3", "pixtral", "idefics3", "internvl", "paligemma"]
SERVED: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("gpt_oss", {}),
    ("gemma3", {}),  # its half for text
    ("lfm2", {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}),
    ("granitemoehybrid", {"num_hidden_layers": 2, "layer_types": ["attention"] * 2}),
]


@pytest.mark.parametrize("model_type", RECURRENT)
def test_recurrent_layers_are_rejected(model_type: str) -> None:
    with pytest.raises(ModelRejected, match=r"its layers \([\w, ]+\) pass a state from token to token"):
        check_architecture(AutoConfig.for_model(model_type))


def test_weights_are_not_read_before(tmp_path: Path) -> None:
    AutoConfig.for_model("jamba").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(ModelRejected, match=r"jamba cannot be served: its layers \(linear_attention\)"):
        load_plain(tmp_path, EngineConfig(str(tmp_path), listen="", cache_dir=tmp_path))


def test_convolutions_between_attention_layers_are_rejected() -> None:
    config = AutoConfig.for_model("lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"])
    with pytest.raises(ModelRejected, match=r"its layers \(conv\) pass a state"):
        check_architecture(config)


@pytest.mark.parametrize("model_type", IMAGES)
def test_models_of_images_are_rejected(model_type: str) -> None:
    with pytest.raises(ModelRejected, match=f"no causal language model for {model_type}.*of text and images"):
        check_architecture(AutoConfig.for_model(model_type))


@pytest.mark.parametrize(("model_type", "fields"), SERVED)
def test_attention_and_mixtures_are_accepted(model_type: str, fields: dict[str, Any]) -> None:
    check_architecture(AutoConfig.for_model(model_type, **fields))
