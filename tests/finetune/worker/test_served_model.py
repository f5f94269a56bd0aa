"""Training uses exactly the model that the engine serves, or fails."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from loragate.engine.model.checkpoint import base_digest
from loragate.engine.model.errors import ModelRejected
from loragate.finetune.data.formats import Method
from loragate.finetune.jobs.hyperparameters import Hyperparameters
from loragate.finetune.jobs.recipe import BaseFacts, resolve_recipe
from loragate.finetune.worker.served_model import served_model
from loragate.v1 import engine_pb2 as pb


def make(folder: Path, config: dict[str, object], seed: int = 0) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"w": np.full(3, seed, np.float32)}, folder / "model.safetensors")
    return folder


def manifest_of(folder: Path, tmp_path: Path) -> pb.Manifest:
    return pb.Manifest(model_id="base", base_digest=base_digest(folder, tmp_path / "digests.json"))


@pytest.mark.parametrize(
    "config", [{"hidden_size": 64}, {"n_embd": 64}, {"text_config": {"hidden_size": 64}, "d_model": 8}]
)
def test_the_engines_own_folder_is_used(tmp_path: Path, config: dict[str, object]) -> None:
    folder = make(tmp_path / "base", config)
    found = served_model(str(folder), manifest_of(folder, tmp_path), tmp_path / "work")
    assert (found.folder, found.hidden_size) == (folder, 64)


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({}, ""),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"text_config": {"quantization_config": {"quant_method": "compressed-tensors"}}}, "compressed-tensors"),
    ],
)
def test_the_method_of_saved_quantization_is_found(tmp_path: Path, config: dict[str, object], method: str) -> None:
    folder = make(tmp_path / "base", {"hidden_size": 64} | config)
    found = served_model(str(folder), manifest_of(folder, tmp_path), tmp_path / "work")
    assert found.quantization == method
    recipe = resolve_recipe(
        Hyperparameters(), Method.SUPERVISED, BaseFacts(64, 128, 16, found.quantization), None, seed=0
    )
    assert recipe.quantization == ("none" if method else "nf4"), "saved weights are trained on as they are"


def test_other_weights_are_rejected_with_the_reason(tmp_path: Path) -> None:
    served = make(tmp_path / "served", {"hidden_size": 64})
    other = make(tmp_path / "other", {"hidden_size": 64}, seed=1)
    with pytest.raises(ModelRejected, match="other is not the base model that the engine serves, base"):
        served_model(str(other), manifest_of(served, tmp_path), tmp_path / "work")


def test_a_config_without_a_width_is_rejected_with_the_reason(tmp_path: Path) -> None:
    folder = make(tmp_path / "base", {"layers": 2})
    with pytest.raises(ModelRejected, match="does not state the model's hidden size"):
        served_model(str(folder), manifest_of(folder, tmp_path), tmp_path / "work")
