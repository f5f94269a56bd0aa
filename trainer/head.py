"""The head in chunks of rows: logprobs of the targets, the losses, and their derivative by the final states.

All logits of a step would be larger than everything else: 1,024 rows of 152,000 tokens are 622 MB. Each chunk is whole
pieces, so the gradient of a head's adapter does not depend on the size of chunks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.trainer.lora_layer import StepContext
from loragate.trainer.packing import Piece, Step, pieces_of, segments_of
from loragate.trainer.request import DatumResults

DEFAULT_LOGIT_BYTES = 128 << 20


class _FinalStates(nn.Module):
    """Stands for the model below the head, and returns states that it has computed before."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self._states = (states,)

    def __getattr__(self, name: str) -> Any:
        return self if name == "decoder" else super().__getattr__(name)

    def forward(self, *_: Any, **__: Any) -> "_Output":
        return _Output(self._states[0])


class _Output:
    def __init__(self, states: Tensor) -> None:
        self.last_hidden_state = states

    def __getitem__(self, index: int) -> Tensor:
        assert index == 0
        return self.last_hidden_state

    def __getattr__(self, name: str) -> None:
        return None


class Head:
    """What a causal language model does after its last layer: the head, and scales or caps of the logits."""

    def __init__(self, model: PreTrainedModel, context: StepContext, vocabulary: int) -> None:
        self._model = model
        self._context = context
        self._vocabulary = vocabulary
        self.logit_bytes = DEFAULT_LOGIT_BYTES

    def logits(self, states: Tensor) -> Tensor:
        """Compute states [rows, hidden] → [rows, vocabulary] in single precision."""
        prefix = self._model.base_model_prefix
        body = getattr(self._model, prefix)
        setattr(self._model, prefix, _FinalStates(states[None]))
        try:
            logits: Tensor = self._model(input_ids=None, use_cache=False).logits[0]
        finally:
            setattr(self._model, prefix, body)
        return logits.float()

    def compute(self, step: Step, states: Tensor, results: DatumResults, *, train: bool) -> Tensor | None:
        """Record the logprobs and losses of all rows, states [rows, hidden].

        Return the derivative of the losses by the states if `train`, or None where it is zero.
        """
        states = states.detach()
        gradient: Tensor | None = None
        for chunk in self._chunks(step):
            rows = slice(chunk[0].start, chunk[-1].stop)
            part = states[rows].clone().requires_grad_(train)
            with self._context.running(step, segments_of(step.work, chunk)), torch.set_grad_enabled(train):
                logits = self.logits(part)
                log_softmax = logits.detach().log_softmax(dim=-1)
                targets = _targets(step, chunk, states.device)
                slopes = _record(step, chunk, log_softmax.gather(1, targets), results)
                if train and slopes.any():
                    torch.autograd.backward(logits, _logit_gradient(log_softmax, targets, slopes))
                    gradient = torch.zeros_like(states) if gradient is None else gradient
                    assert part.grad is not None
                    gradient[rows] = part.grad
        return gradient

    def _chunks(self, step: Step) -> Iterator[list[Piece]]:
        most = max(1, self.logit_bytes // (4 * self._vocabulary))
        chunk: list[Piece] = []
        for piece in pieces_of(step.work, step.starts):
            if chunk and piece.stop - chunk[0].start > most:
                yield chunk
                chunk = []
            chunk.append(piece)
        yield chunk


def _targets(step: Step, chunk: Sequence[Piece], device: torch.device) -> Tensor:
    """Return the targets of a chunk's rows, [rows, K], padded with 0."""
    parts = [step.work[piece.work].datum.targets[piece.offset :] for piece in chunk]
    targets = np.zeros((chunk[-1].stop - chunk[0].start, max(part.shape[1] for part in parts)), np.int64)
    for piece, part in zip(chunk, parts, strict=True):
        part = part[: piece.stop - piece.start]
        start = piece.start - chunk[0].start
        targets[start : start + part.shape[0], : part.shape[1]] = part
    return torch.from_numpy(targets).to(device)


def _record(step: Step, chunk: Sequence[Piece], logprobs: Tensor, results: DatumResults) -> NDArray[np.float64]:
    """Record each piece's logprobs and losses; return the derivatives of the losses, [rows, K]."""
    found = logprobs.cpu().numpy()
    slopes = np.zeros(found.shape)
    for piece in chunk:
        work = step.work[piece.work]
        end = min(piece.offset + piece.stop - piece.start, work.datum.tokens.shape[0])
        first = piece.start - chunk[0].start
        place = slice(first, first + end - piece.offset), slice(work.datum.targets.shape[1])
        slopes[place] = results.add(work, piece.offset, end, found[place])
    return slopes


def _logit_gradient(log_softmax: Tensor, targets: Tensor, slopes: NDArray[np.float64]) -> Tensor:
    """Return Σ slope · (one-hot of the target − softmax), in place of `log_softmax`.

    Each row's sum is of its own targets, one by one: neighbours with more targets pad it with zeros.
    """
    totals = np.add.accumulate(slopes, axis=1)[:, -1:].astype(np.float32)
    softmax = log_softmax.exp_().mul_(torch.from_numpy(-totals).to(log_softmax.device))
    return softmax.scatter_add_(1, targets, torch.from_numpy(slopes.astype(np.float32)).to(log_softmax.device))
