"""The check at load that the packed, paged model computes the same as transformers' eager one.

Lengths are mixed on both sides of every threshold in the config, in one batch, because models exist whose rotary
frequencies depend on the longest sequence of the batch. Thresholds too long to run are checked on a shrunken twin with
random weights. So is every model of less than single precision, whose rounding would hide a small mistake: the code is
under test, not the numbers. So is every mixture of experts: where two experts are nearly tied for a row, the last bit
decides, and the row's logits jump. Only most positions of such a model can be expected to match the reference.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from loragate.engine.execution.model_runner import LastTokens, ModelRunner
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.layers.experts import is_mixture
from loragate.engine.layers.quantization import is_quantized_model
from loragate.engine.model.base_model import BaseModel, prepare
from loragate.engine.model.errors import ModelRejected
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence

_THRESHOLDS = ("sliding_window", "attention_chunk_size", "original_max_position_embeddings")
_LENGTHS = (1, 5, 17, 40)
_TWIN_THRESHOLD = 24
_RUNNABLE = 256  # longer thresholds are checked on the twin
_BLOCK_SIZE = 8
_CHUNK = 7
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15, torch.float16: 0.05}  # of the logits' norm
_TOLERANCE_QUANTIZED = 0.15  # an input that is rounded to 8 bits turns a difference of 1e-7 into one of 1e-2


@dataclass(frozen=True, slots=True)
class Reference:
    """Prompts, and the eager logits [length, vocabulary] at each of their positions."""

    prompts: tuple[tuple[int, ...], ...]
    logits: tuple[Tensor, ...]


def thresholds(config: PreTrainedConfig) -> dict[str, int]:
    """Return the lengths at which the model's arithmetic changes, by the config field that names them."""
    text = config.get_text_config()
    found = {name: getattr(text, name, None) for name in _THRESHOLDS}
    for nested in ("rope_parameters", "rope_scaling"):
        value = (getattr(text, nested, None) or {}).get("original_max_position_embeddings")
        found["original_max_position_embeddings"] = found["original_max_position_embeddings"] or value
    return {name: int(value) for name, value in found.items() if value}


def random_prompts(config: PreTrainedConfig, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the same random prompts of these lengths each time."""
    generator = torch.Generator().manual_seed(7)
    vocabulary = config.get_text_config().vocab_size
    return tuple(tuple(torch.randint(0, vocabulary, (length,), generator=generator).tolist()) for length in lengths)


@torch.inference_mode()
def reference(model: PreTrainedModel, lengths: tuple[int, ...]) -> Reference:
    """Run the plain model on random prompts, one at a time. Call before `prepare`."""
    prompts = random_prompts(model.config, lengths)
    inputs = [torch.tensor([prompt], device=model.device) for prompt in prompts]
    return Reference(prompts, tuple(model(input_ids=ids, use_cache=False).logits[0].float() for ids in inputs))


def check_lengths(config: PreTrainedConfig, max_model_len: int) -> tuple[int, ...]:
    """Return the lengths to check on the real model: short ones, and both sides of each threshold that is short
    enough."""
    near = [t + d for t in thresholds(config).values() if t <= _RUNNABLE for d in (-1, 0, 1, 9)]
    return tuple(sorted({n for n in (*_LENGTHS, *near) if 1 <= n < max_model_len}))


def verify(base: BaseModel, expected: Reference) -> None:
    """Compare packed logits with eager ones, at prefill in chunks and at decode. Raise ModelRejected."""
    error = deviation(base, errors(base, expected))
    if not error <= tolerance(base):
        raise _rejection(type(base.model).__name__, error)


def deviation(base: BaseModel, found: Tensor) -> float:
    """Return the error of most rows of a mixture or of a quantized model in half precision, or of all rows of others.

    In inputs that are rounded twice, as in a router, the last bit decides between two numbers.
    """
    some = is_mixture(base.model) or (base.is_quantized and base.dtype != torch.float32)
    return float(found.median() if some else found.max())


def tolerance(base: BaseModel) -> float:
    """Return the largest error that rounding explains."""
    return _TOLERANCE_QUANTIZED if base.is_quantized else _TOLERANCE[base.dtype]


def row_errors(logits: Tensor, truth: Tensor) -> Tensor:
    """Return the difference of each row of logits [rows, vocabulary] relative to the true row's norm."""
    truth = truth.float()
    found: Tensor = (logits.float() - truth).norm(dim=1) / truth.norm(dim=1).clamp(min=1e-6)
    return found.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu()


def errors(base: BaseModel, expected: Reference) -> Tensor:
    """Return the difference at each position relative to its logits' norm. Allocates the cache for itself."""
    longest = max(len(prompt) for prompt in expected.prompts)
    blocks = BlockPool(len(expected.prompts) * (longest // _BLOCK_SIZE + 1), _BLOCK_SIZE)
    base.allocate_cache(blocks.places)
    runner = ModelRunner(base, LastTokens(1, base.device))
    sequences = [_sequence(prompt) for prompt in expected.prompts]
    found = []
    while pending := {s: t for s in sequences if (t := _next_tokens(s)) > 0}:
        for sequence, tokens in pending.items():
            sequence.tokens = list(sequence.request.prompt[: sequence.computed + tokens])
            blocks.grow(sequence, len(sequence.tokens))
        step = runner.execute(pending)
        for sequence, tokens in pending.items():
            sequence.computed += tokens
        truth = [expected.logits[sequences.index(sequence)][sequence.computed - 1] for sequence in step.sampled]
        found.append(row_errors(step.logits, torch.stack(truth)))
    return torch.cat(found)


def cap_from_twin(model: PreTrainedModel) -> tuple[int | None, str]:
    """Check on a shrunken twin what the model itself cannot show: return (cap on max_model_len or None, the reason).

    Raise ModelRejected if the twin is wrong at short lengths too.
    """
    config = model.config
    exact = model.dtype == torch.float32 and not is_mixture(model) and not is_quantized_model(model)
    unseen = {name: t for name, t in thresholds(config).items() if t > _RUNNABLE or not exact}
    if exact and not unseen:
        return None, ""
    twin = _shrink(config, unseen)
    edge = _TWIN_THRESHOLD
    if _twin_error(twin, (3, edge - 1, edge, edge + 1, edge + 20)) <= _TOLERANCE[torch.float32]:
        return None, ""
    below = _twin_error(twin, (3, edge // 2, edge - 1)) if unseen else float("inf")
    if below > _TOLERANCE[torch.float32]:
        raise _rejection(config.architectures[0] if config.architectures else config.model_type, below)
    name, threshold = min(unseen.items(), key=lambda item: item[1])
    note = (
        f"max_model_len is capped at {threshold} ({name}): beyond it this model's arithmetic depends on the other "
        "sequences of the batch, or is not passed to the attention interface"
    )
    return threshold, note


def _rejection(architecture: str, error: float) -> ModelRejected:
    return ModelRejected(
        f"{architecture} cannot be served: in a packed batch its logits differ from transformers' by {error:.1e} of "
        "their size. Its attention does something that it does not pass to the attention interface"
    )


def _twin_error(config: PreTrainedConfig, lengths: tuple[int, ...]) -> float:
    torch.manual_seed(0)
    twin = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32
    ).eval()
    expected = reference(twin, lengths)
    return float(errors(prepare(twin.requires_grad_(False)), expected).max())


def _shrink(config: PreTrainedConfig, long: Mapping[str, int]) -> PreTrainedConfig:
    """Return a small config of the same architecture: few layers, a small vocabulary, every long threshold at 24."""
    twin = copy.deepcopy(config)
    if hasattr(twin, "quantization_config"):
        del twin.quantization_config
    text = twin.get_text_config()
    kinds = getattr(text, "layer_types", None)
    layers = min(text.num_hidden_layers, max(2, len(set(kinds or ()))))
    if kinds:
        text.layer_types = _keep_kinds(kinds, layers)
    text.num_hidden_layers = layers
    text.vocab_size = 256
    text.pad_token_id = None
    for size in ("intermediate_size", "moe_intermediate_size"):
        if hasattr(text, size):
            setattr(text, size, 128)
    for name in long:
        if getattr(text, name, None):
            setattr(text, name, _TWIN_THRESHOLD)
        for nested in ("rope_parameters", "rope_scaling"):
            rope = getattr(text, nested, None)
            if isinstance(rope, dict) and name in rope:
                rope[name] = _TWIN_THRESHOLD
    return twin


def _keep_kinds(layer_types: list[str], layers: int) -> list[str]:
    """Return the first layers, with the last ones replaced so that no kind of layer is lost."""
    kept = layer_types[:layers]
    missing = [kind for kind in dict.fromkeys(layer_types) if kind not in kept]
    return kept[: layers - len(missing)] + missing


def _sequence(prompt: tuple[int, ...]) -> Sequence:
    return Sequence(Request(0, 0, prompt, None, SamplingParams(max_tokens=1, seed=0)), 0)


def _next_tokens(sequence: Sequence) -> int:
    """Return the size of the next chunk: one chunk, three single tokens, then chunks, so that both paths share a
    cache."""
    left = len(sequence.request.prompt) - sequence.computed
    return min(left, 1 if _CHUNK <= sequence.computed < _CHUNK + 3 else _CHUNK)
