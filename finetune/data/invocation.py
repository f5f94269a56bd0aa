"""The invocation of activated LoRA in training samples.

An activated adapter (aLoRA, Greenewald et al. 2025, arXiv:2504.12397) is in effect from the last occurrence of its
invocation tokens in a prompt; before, the model is the base model. So only tokens after the last occurrence are
learned. PEFT looks for it in a whole row, and the engine in a prompt: an answer that contains it is not learned.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from loragate.finetune.data.encoding import Ids, Mask, Sample
from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.loss_mask import MaskedText

InvocationTokens = tuple[int, ...]

_LACKING = "its tokens do not contain the invocation (`alora_invocation_tokens`)"
_NOTHING_AFTER = (
    "nothing is left to learn after its last invocation (`alora_invocation_tokens`), which belongs in the prompt: "
    "an answer that contains it is not learned"
)


def activated(
    texts: Sequence[MaskedText], samples: Sequence[Sample], invocation: InvocationTokens, *, truncated: bool
) -> list[Sample]:
    """Return those samples of one example that have something to learn after their last invocation, and nothing else.

    If no sample has, return them all without targets if they are `truncated`, otherwise raise InvalidLine.
    """
    found = [_activated(text, sample, invocation) for text, sample in zip(texts, samples, strict=True)]
    targets = [sample for sample in found if sample.has_targets]
    if targets or truncated:
        return targets or found
    occurs = any(last_invocation(sample.ids, invocation) is not None for sample in samples)
    raise InvalidLine(_NOTHING_AFTER if occurs else _LACKING)


def last_invocation(ids: Ids, invocation: Sequence[int]) -> int | None:
    """Return the position at which the invocation last begins in the tokens, None if it does not occur."""
    starts = max(0, len(ids) - len(invocation) + 1)
    matches = np.ones(starts, np.bool_)
    for offset, token in enumerate(invocation):
        matches &= ids[offset : offset + starts] == token
    places = np.flatnonzero(matches)
    return int(places[-1]) if len(places) else None


def _activated(text: MaskedText, sample: Sample, invocation: InvocationTokens) -> Sample:
    start = last_invocation(sample.ids, invocation)
    if start is None:
        return replace(sample, learned=np.zeros_like(sample.learned))
    stop = start + len(invocation)
    if text.has_prompt:
        stop = _end_of_answer(sample.learned, stop)
    return replace(sample, learned=sample.learned & (np.arange(len(sample.ids)) >= stop))


def _end_of_answer(learned: Mask, stop: int) -> int:
    """Return the end of the answer that the token before `stop` belongs to; `stop` if it belongs to none."""
    if not learned[stop - 1]:
        return stop
    rest = np.flatnonzero(~learned[stop:])
    return stop + int(rest[0]) if len(rest) else len(learned)
