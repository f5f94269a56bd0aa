"""Architectures that are rejected before their weights are read; the check after loading rejects others."""

from collections.abc import Mapping
from typing import Any, cast

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig

from loragate.engine.model.errors import ModelRejected

_RECURRENT = frozenset({"linear_attention", "conv", "hybrid", "hybrid_sliding"})  # kinds of layers, by transformers


def check_architecture(config: PreTrainedConfig) -> None:
    """Raise ModelRejected for a model that is no causal language model, or has recurrent layers."""
    name = (config.architectures or [config.model_type])[0]
    model = cast(Mapping[type, Any], MODEL_FOR_CAUSAL_LM_MAPPING).get(type(config), None)
    if model is None:
        raise ModelRejected(
            f"{name} cannot be served: transformers has no causal language model for {config.model_type}. "
            "Models of text and images are not served"
        )
    kinds = getattr(config.get_text_config(), "layer_types", None)
    recurrent = sorted(_RECURRENT.intersection(kinds)) if kinds else ["recurrent"] * bool(model._is_stateful)
    if recurrent:
        raise ModelRejected(
            f"{name} cannot be served: its layers ({', '.join(recurrent)}) pass a state from token to token; only "
            "attention and mixtures of experts are served"
        )
