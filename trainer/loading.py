"""The start of a trainer: loads the base model, and checks that it computes packed sequences as transformers does."""

from pathlib import Path

import torch

from loragate.engine.config import EngineConfig
from loragate.engine.layers.experts import is_mixture
from loragate.engine.layers.quantization import is_quantized_model
from loragate.engine.model.base_model import load_plain
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.tracing import trace
from loragate.engine.startup import self_check
from loragate.trainer.adapter import LoraSettings, empty_adapter
from loragate.trainer.base_model import BaseModel, max_length, prepare
from loragate.trainer.datum import TARGETS, Datum
from loragate.trainer.packing import Work, pack, padded_rows

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15, torch.float16: 0.05}  # of the logits' norm


def load(directory: Path, config: EngineConfig, *, checkpointing: bool) -> BaseModel:
    """Load the model as the engine does. Raise ModelRejected for one that cannot be trained."""
    model = load_plain(directory, config)
    if is_quantized_model(model):
        raise ModelRejected(f"{directory} cannot be trained: its weights are quantized; use dense ones")
    try:
        traced = trace(model)
    except RuntimeError as error:
        raise ModelRejected(f"{type(model).__name__} cannot be trained: {error}") from error
    lengths = self_check.check_lengths(model.config, max_length(model, config))
    expected = self_check.reference(model, lengths)
    base = prepare(model, traced, config, checkpointing=checkpointing)
    _verify(base, expected)
    return base


@torch.no_grad()
def _verify(base: BaseModel, expected: self_check.Reference) -> None:
    """Raise ModelRejected if the model computes something that the packed step does not.

    Most rows of a mixture must be the same, as in the engine: where two experts are nearly tied, the last bit decides.
    """
    adapter = empty_adapter(LoraSettings(1), {}, base.targets, base.device)
    prompts = [torch.tensor(prompt).numpy() for prompt in expected.prompts]
    data = [Datum(prompt, {TARGETS: prompt}) for prompt in prompts]
    step = pack(tuple(Work(0, place, datum, adapter, None) for place, datum in enumerate(data)), base.device)
    with base.context.running(step, step.segments):
        logits = base.head.logits(base.final_states(step)[0])
    starts = torch.tensor([0, *(padded_rows(len(prompt)) for prompt in prompts)]).cumsum(0).tolist()
    found = torch.cat([logits[s : s + len(prompt)] for s, prompt in zip(starts, prompts, strict=False)])
    errors = self_check.row_errors(found, torch.cat(expected.logits))
    error = float(errors.median() if is_mixture(base.model) else errors.max())
    if not error <= _TOLERANCE[base.model.dtype]:
        raise ModelRejected(
            f"{type(base.model).__name__} cannot be trained: packed sequences' logits differ from transformers' by "
            f"{error:.1e} of their size. Its layers do something that they do not pass to the attention interface"
        )
