"""Changes of logits before a token is chosen: bias, penalties, and min_tokens.

The parameters are sent to the device, and nothing is read back.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from loragate.engine.runtime.arrays import Floats, Integers
from loragate.engine.sequence.request import SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.sequence.token_counts import TokenCounts
from loragate.kernels.transfers import to_device

Numbers = tuple[Integers, Floats]
"""Distinct tokens, and a number for each."""


def adjusts(p: SamplingParams) -> bool:
    """Return whether `adjust` would change anything."""
    return bool(p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty or p.logit_bias)


def adjust(logits: Tensor, sequences: Mapping[int, Sequence]) -> None:
    """Apply bias and penalties to these rows, in place.

    Repetition counts prompt and completion (Keskar et al., 2019); presence and frequency count the completion only, as
    in OpenAI's API.
    """
    width = logits.shape[1]
    for numbers_of, change in ((_biases, torch.add), (_repeated, _penalized), (_counted, torch.sub)):
        found = [(row * width, numbers) for row, s in sequences.items() if (numbers := numbers_of(s)) is not None]
        if found:
            places = np.concatenate([start + tokens for start, (tokens, _) in found])
            _change(logits.view(-1), places, np.concatenate([values for _, (_, values) in found]), change)


def forbid_ends(logits: Tensor, ends: Mapping[int, frozenset[int]]) -> None:
    """Forbid end tokens (min_tokens) in these rows, in place, unless the grammar allows nothing else."""
    width = logits.shape[1]
    rows = to_device(list(ends), logits.device)
    as_they_are = logits.index_select(0, rows)
    without = as_they_are.clone()
    places = [place * width + token for place, each in enumerate(ends.values()) for token in each]
    without.view(-1).index_fill_(0, to_device(places, logits.device, torch.long), float("-inf"))
    goes_on = torch.isfinite(without).any(dim=-1, keepdim=True)
    logits.index_copy_(0, rows, without.where(goes_on, as_they_are))


def _biases(sequence: Sequence) -> Numbers | None:
    bias = sequence.request.sampling.logit_bias
    if not bias:
        return None
    tokens, values = zip(*bias, strict=True)
    return np.array(tokens), np.array(values, dtype=np.float64)


def _repeated(sequence: Sequence) -> Numbers | None:
    penalty = sequence.request.sampling.repetition_penalty
    if penalty == 1:
        return None
    tokens = _counts(sequence).all
    return tokens, np.full(len(tokens), penalty)


def _counted(sequence: Sequence) -> Numbers | None:
    p = sequence.request.sampling
    if not p.presence_penalty and not p.frequency_penalty:
        return None
    tokens, counts = _counts(sequence).generated
    return tokens, (p.frequency_penalty * counts + p.presence_penalty).astype(np.float64)


def _counts(sequence: Sequence) -> TokenCounts:
    if sequence.counts is None:
        sequence.counts = TokenCounts(sequence.request.prompt)
    sequence.counts.update(sequence.tokens)
    return sequence.counts


def _penalized(logits: Tensor, penalties: Tensor) -> Tensor:
    return torch.where(logits > 0, logits / penalties, logits * penalties)


def _change(logits: Tensor, places: Integers, values: Floats, change: Callable[[Tensor, Tensor], Tensor]) -> None:
    at = to_device(places, logits.device)
    logits.index_copy_(0, at, change(logits.index_select(0, at), to_device(values, logits.device, logits.dtype)))
