"""The names that PEFT gives an adapter's tensors, and the error for an unexpected tensor."""

import re

from loragate.peft_format.errors import in_tensor, quoted

_PREFIX = "base_model.model."

# The first pattern that matches explains the name.
_FOREIGN = (
    (r"\.lora_embedding_[AB]$", "is LoRA on an embedding that target_modules does not select in this base model"),
    (r"\.lora_magnitude_vector", "belongs to DoRA, but use_dora is false or target_modules does not select its module"),
    (r"\.lora_diag$", "belongs to KaSA, which changes the base model's weights and is not served; train without it"),
    (r"\.lora_[AB]\.[^.]+\.(weight|bias)$", "has an adapter's name in it; write the file with save_pretrained"),
    (
        r"\.experts\.",
        "is LoRA on the experts of a mixture that neither target_parameters nor target_modules selects in this model",
    ),
    (r"\.lora_B\.bias$", "is a bias, but lora_bias is false or target_modules does not select its module"),
    (r"\.lora_[AB]\.weight$", "is for a module that target_modules does not select in this base model"),
    (r"trainable_tokens", "holds trained tokens, but trainable_token_indices names none for this module"),
    (
        r"\.base_layer\.|\.(embed_tokens|lm_head)\.weight$",
        "is a copy of the base model's own, as modules_to_save does not name its module; "
        "save the adapter with save_embedding_layers=False",
    ),
    (r"\.(score|classifier)\.", "belongs to a head for labels, but task_type is neither SEQ_CLS nor TOKEN_CLS"),
    (r"\.bias$", "is a bias of the base model, but neither bias nor modules_to_save says that it was trained"),
    (r"\.weight$", "is a whole weight, but modules_to_save does not name its module"),
)


def parameter(path: str) -> str:
    """Return the name of a base-model parameter, under its own path."""
    return f"{_PREFIX}{path}"


def lora_a(module: str) -> str:
    """Return the name of A, [rank, in_features]."""
    return f"{_PREFIX}{module}.lora_A.weight"


def lora_b(module: str) -> str:
    """Return the name of B, [out_features, rank]."""
    return f"{_PREFIX}{module}.lora_B.weight"


def lora_b_bias(module: str) -> str:
    """Return the name of B's bias, [out_features]."""
    return f"{_PREFIX}{module}.lora_B.bias"


def embedding_a(module: str) -> str:
    """Return the name of an embedding's A, [rank, vocabulary]."""
    return f"{_PREFIX}{module}.lora_embedding_A"


def embedding_b(module: str) -> str:
    """Return the name of an embedding's B, [dim, rank]."""
    return f"{_PREFIX}{module}.lora_embedding_B"


def magnitude(module: str) -> str:
    """Return the name of DoRA's magnitudes, [out_features]."""
    return f"{_PREFIX}{module}.lora_magnitude_vector"


def trained_rows(module: str) -> str:
    """Return the name of the trained rows of an embedding or head, [tokens, dim]."""
    return f"{_PREFIX}{module}.token_adapter.trainable_tokens_delta"


def foreign(name: str) -> Exception:
    """Return the error for a tensor that nothing in the config accounts for."""
    if not name.startswith(_PREFIX):
        reason = f"does not begin with {_PREFIX}; write the file with PEFT's save_pretrained"
    else:
        reason = next(
            (text for pattern, text in _FOREIGN if re.search(pattern, name)),
            "is not part of a LoRA adapter; remove it",
        )
    return in_tensor(name, f"The tensor {quoted(name)} {reason}.")
