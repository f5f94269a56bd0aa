"""What requests change of their logits before a token is chosen: bias, penalties, and no end yet. The numbers that say
so go to the device, and nothing comes back."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain

import torch
from torch import Tensor

from loragate.engine.sequence import SamplingParams, Sequence
from loragate.kernels.sent import sent

Numbers = list[tuple[int, float]]
"""Places in the logits, row after row, none of them twice, and a number for each."""


def adjusts(p: SamplingParams) -> bool:
    """Whether there is anything to `adjust`."""
    return bool(p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty or p.logit_bias)


def adjust(logits: Tensor, sequences: Mapping[int, Sequence]) -> None:
    """Bias and penalties in these rows, in place. Repetition counts prompt and completion (Keskar et al., 2019);
    presence and frequency count the completion only, as OpenAI's API does."""
    width = logits.shape[1]
    for numbers_of, change in ((_biases, torch.add), (_repeated, _penalised), (_counted, torch.sub)):
        numbers = chain.from_iterable(numbers_of(s, row * width) for row, s in sequences.items())
        _change(logits.view(-1), list(numbers), change)


def hold_back(logits: Tensor, ends: Mapping[int, frozenset[int]]) -> None:
    """No end yet (min_tokens) in these rows, in place, unless ends are all that the grammar allows."""
    width = logits.shape[1]
    rows = sent(list(ends), logits.device)
    as_they_are = logits.index_select(0, rows)
    without = as_they_are.clone()
    places = [place * width + token for place, each in enumerate(ends.values()) for token in each]
    without.view(-1).index_fill_(0, sent(places, logits.device, torch.long), float("-inf"))
    goes_on = torch.isfinite(without).any(dim=-1, keepdim=True)
    logits.index_copy_(0, rows, without.where(goes_on, as_they_are))


def _biases(sequence: Sequence, start: int) -> Numbers:
    return [(start + token, bias) for token, bias in sequence.request.sampling.logit_bias]


def _repeated(sequence: Sequence, start: int) -> Numbers:
    penalty = sequence.request.sampling.repetition_penalty
    return [] if penalty == 1 else [(start + token, penalty) for token in set(sequence.tokens)]


def _counted(sequence: Sequence, start: int) -> Numbers:
    p = sequence.request.sampling
    if not p.presence_penalty and not p.frequency_penalty:
        return []
    counts = Counter(sequence.tokens[sequence.prompt_length :])
    return [(start + token, p.frequency_penalty * count + p.presence_penalty) for token, count in counts.items()]


def _penalised(logits: Tensor, penalties: Tensor) -> Tensor:
    return torch.where(logits > 0, logits / penalties, logits * penalties)


def _change(logits: Tensor, numbers: Numbers, change: Callable[[Tensor, Tensor], Tensor]) -> None:
    if not numbers:
        return
    places, values = zip(*numbers, strict=True)
    at = sent(places, logits.device)
    logits.index_copy_(0, at, change(logits.index_select(0, at), sent(values, logits.device, logits.dtype)))
