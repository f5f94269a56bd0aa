"""The recipe of a training run: every hyperparameter with its final value."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from loragate.finetune.data.formats import Method
from loragate.finetune.jobs.hyperparameters import ClassifyHyperparameters, DpoHyperparameters, Hyperparameters

# QLoRA's (Dettmers et al. 2023, arXiv:2305.14314, table 9) for a hidden size of 4096. Smaller models take larger ones:
# "LoRA Without Regret" (Schulman et al., Thinking Machines, 2025) finds powers of the hidden size from 0.08 to 0.8.
_LEARNING_RATE = 2e-4
_REFERENCE_HIDDEN_SIZE = 4096
_POWER = 0.75
_MAX_LEARNING_RATE = 2e-3
_DPO_SHARE = 0.1  # of the rate of supervised training
_DPO_BETA = 0.1  # Rafailov et al. 2023, arXiv:2305.18290
_TARGET_EXAMPLES = 2000  # examples over all epochs, for small files
_MIN_EPOCHS, _MAX_EPOCHS = 1, 10
_DEFAULT_MAX_LENGTH = 2048
_MIN_ROWS_TO_PACK = 1000
_VALIDATION_SPLIT = 0.1  # of the training file, for a classifier without a validation file
_STREAMING_BATCH_SIZE = 8  # examples per step, for a file of unknown length


@dataclass(frozen=True)
class BaseFacts:
    """The properties of the base model that automatic choices depend on."""

    hidden_size: int
    max_model_len: int
    max_lora_rank: int
    quantization: str = ""  # the method by which its weights are saved, if they are quantized


@dataclass(frozen=True)
class DataFacts:
    """The properties of a job's files that automatic choices depend on."""

    examples: int
    tokens: int
    validated: bool = False  # there is a validation file


@dataclass(frozen=True)
class Recipe:
    """All hyperparameters of a run. `learning_rate` is the rate after warm-up. `batch_size` counts examples, or rows if
    they are packed."""

    method: Method
    epochs: int
    batch_size: int
    learning_rate: float
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    use_rslora: bool
    use_dora: bool
    target_modules: str | tuple[str, ...]
    quantization: str
    max_length: int
    packing: bool
    lr_scheduler: str
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    early_stopping_patience: int | None
    beta: float | None
    seed: int
    streaming: bool = False
    n_steps: int | None = None
    validation_split: float = 0.0
    alora_invocation_tokens: tuple[int, ...] | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the recipe as JSON for `from_document`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Recipe":
        """Return the recipe that `to_document` wrote."""
        targets = document["target_modules"]
        targets = targets if isinstance(targets, str) else tuple(targets)
        invocation = document.get("alora_invocation_tokens")
        typed = {
            "method": Method(document["method"]),
            "target_modules": targets,
            "alora_invocation_tokens": None if invocation is None else tuple(invocation),
        }
        return cls(**document | typed)


def max_length_for(asked: Hyperparameters, base: BaseFacts) -> int:
    """Return the maximum length of a sample in tokens, which is needed before the data can be counted."""
    longest = min(_DEFAULT_MAX_LENGTH, base.max_model_len) if asked.max_length == "auto" else asked.max_length
    return min(longest, base.max_model_len)


def resolve_recipe(
    asked: Hyperparameters, method: Method, base: BaseFacts, data: DataFacts | None, seed: int
) -> Recipe:
    """Return the recipe, with a value for everything left open. `data` is None for a file that may still grow."""
    max_length = max_length_for(asked, base)
    rank = min(16, base.max_lora_rank) if asked.lora_rank == "auto" else asked.lora_rank
    multiplier = 1.0 if asked.learning_rate_multiplier == "auto" else asked.learning_rate_multiplier
    beta = asked.beta if isinstance(asked, DpoHyperparameters) else None
    packing = _should_pack(data, max_length) if asked.packing == "auto" else asked.packing
    scheduler = "constant" if asked.open_ended else asked.lr_scheduler
    return Recipe(
        method=method,
        epochs=_epochs(data) if asked.n_epochs == "auto" else asked.n_epochs,
        batch_size=_batch_size(data) if asked.batch_size == "auto" else asked.batch_size,
        learning_rate=_learning_rate(method, base.hidden_size) * multiplier,
        lora_rank=rank,
        lora_alpha=2 * rank if asked.lora_alpha == "auto" else asked.lora_alpha,
        lora_dropout=asked.lora_dropout,
        use_rslora=asked.use_rslora,
        use_dora=asked.use_dora,
        target_modules=asked.target_modules if isinstance(asked.target_modules, str) else tuple(asked.target_modules),
        quantization="none" if base.quantization else asked.quantization,
        max_length=max_length,
        packing=packing and method is Method.SUPERVISED and asked.invocation is None,
        lr_scheduler=scheduler,
        warmup_ratio=asked.warmup_ratio,
        weight_decay=asked.weight_decay,
        max_grad_norm=asked.max_grad_norm,
        early_stopping_patience=asked.early_stopping_patience,
        beta=_DPO_BETA if beta == "auto" else beta,
        seed=seed,
        streaming=asked.streaming,
        n_steps=asked.n_steps,
        validation_split=_validation_split(asked, data),
        alora_invocation_tokens=asked.invocation,
    )


def _validation_split(asked: Hyperparameters, data: DataFacts | None) -> float:
    if not isinstance(asked, ClassifyHyperparameters):
        return 0.0
    if asked.validation_split != "auto":
        return asked.validation_split
    return 0.0 if data is None or data.validated else _VALIDATION_SPLIT


def _epochs(data: DataFacts | None) -> int:
    return _MIN_EPOCHS if data is None else max(_MIN_EPOCHS, min(_MAX_EPOCHS, round(_TARGET_EXAMPLES / data.examples)))


def _batch_size(data: DataFacts | None) -> int:
    """Return the power of two that gives about thirty steps per epoch."""
    if data is None:
        return _STREAMING_BATCH_SIZE
    return max(4, min(64, 1 << max(0, (data.examples // 32).bit_length() - 1)))


def _learning_rate(method: Method, hidden_size: int) -> float:
    rate = min(_MAX_LEARNING_RATE, _LEARNING_RATE * math.pow(_REFERENCE_HIDDEN_SIZE / hidden_size, _POWER))
    return rate * _DPO_SHARE if method is Method.DPO else rate


def _should_pack(data: DataFacts | None, max_length: int) -> bool:
    """Packing puts several examples into a row and so reduces the steps: enough of them must be left."""
    return data is not None and data.tokens >= _MIN_ROWS_TO_PACK * max_length
