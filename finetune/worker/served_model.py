"""The base model that an engine serves, as found on this machine."""

import json
from dataclasses import dataclass
from pathlib import Path

from loragate.engine.model.checkpoint import base_digest, locate, quantization_method, saved_quantization
from loragate.engine.model.errors import ModelRejected
from loragate.v1 import engine_pb2 as pb

_HIDDEN_SIZES = ("hidden_size", "n_embd", "d_model")
_DIGESTS = "base-digests.json"


@dataclass(frozen=True)
class ServedModel:
    """`folder` holds exactly the weights that the engine computes with.

    `quantization` is the method by which they are saved, or empty.
    """

    folder: Path
    hidden_size: int
    quantization: str = ""


def served_model(model: str, manifest: pb.Manifest, workspace: Path) -> ServedModel:
    """Locate and verify the model. Read all weights the first time. Raise ModelRejected if they differ from the
    engine's."""
    folder = locate(model)
    digest = base_digest(folder, workspace / _DIGESTS)
    if digest != manifest.base_digest:
        raise ModelRejected(
            f"{model} is not the base model that the engine serves, {manifest.model_id}: the digest of its weights "
            f"and config is {digest}, the engine's is {manifest.base_digest}. Pass the engine's own folder as --model"
        )
    saved = saved_quantization(folder)
    return ServedModel(folder, _hidden_size(folder), "" if saved is None else quantization_method(saved))


def _hidden_size(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for each in (config.get("text_config") or {}, config):
        for name in _HIDDEN_SIZES:
            if isinstance(each.get(name), int):
                return int(each[name])
    raise ModelRejected(f"{folder}/config.json does not state the model's hidden size ({', '.join(_HIDDEN_SIZES)})")
