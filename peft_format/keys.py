"""The names that PEFT gives an adapter's tensors, and what to say about one that should not be there."""

import re

from loragate.peft_format.errors import in_tensor, quoted

_PREFIX = "base_model.model."

# In this order: the first that is found in the name explains it.
_FOREIGN = (
    (
        r"\.lora_embedding_[AB]$",
        "is LoRA on an embedding, which is not served; train without targeting embeddings",
    ),
    (
        r"\.base_layer\.",
        "is a copy of the base model's own weight; save the adapter with save_embedding_layers=False",
    ),
    (r"\.lora_magnitude_vector", "belongs to DoRA, which is not served; train with use_dora=false"),
    (
        r"\.(modules_to_save|original_module)\.",
        "is a fully trained module, which is not served; target it with LoRA",
    ),
    (r"trainable_tokens", "holds trained token embeddings, which are not served; train without them"),
    (
        r"\.lora_[AB]\.[^.]+\.(weight|bias)$",
        "has an adapter's name in it; write the file with save_pretrained",
    ),
    (r"\.experts\.", "is LoRA on the experts of a mixture, which is not served; target other modules"),
    (
        r"\.lora_B\.bias$",
        "is a bias, but lora_bias is false or target_modules does not select its module",
    ),
    (
        r"\.lora_[AB]\.weight$",
        "is for a module that target_modules does not select in this base model",
    ),
)


def lora_a(module: str) -> str:
    """A, [rank, in_features]."""
    return f"{_PREFIX}{module}.lora_A.weight"


def lora_b(module: str) -> str:
    """B, [out_features, rank]."""
    return f"{_PREFIX}{module}.lora_B.weight"


def lora_b_bias(module: str) -> str:
    """B's bias, [out_features]."""
    return f"{_PREFIX}{module}.lora_B.bias"


def foreign(name: str) -> Exception:
    """The refusal of a tensor that no targeted module needs."""
    if not name.startswith(_PREFIX):
        reason = f"does not begin with {_PREFIX}; write the file with PEFT's save_pretrained"
    else:
        reason = next(
            (text for pattern, text in _FOREIGN if re.search(pattern, name)),
            "is no part of a LoRA adapter; remove it",
        )
    return in_tensor(name, f"The tensor {quoted(name)} {reason}.")
