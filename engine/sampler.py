"""From logits to tokens. Deterministic given (seed, index, position): the same request gives the same tokens whatever
else is in the batch, and goes on rightly after a preemption, because no generator state is kept."""

import hashlib
import struct
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sequence import SamplingParams, Sequence, TokenLogprob
from loragate.engine.token_mask import TokenMask


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    token: int | None
    logprob: TokenLogprob | None


def sample(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None
) -> list[Sampled]:
    """Choose a token for each row of logits [rows, vocabulary]. Rows outside the mask are as if there were none."""
    logits = logits.float()
    finite = torch.isfinite(logits).all(dim=-1).tolist()
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    changed = _changed(logits, sequences, eos, mask)
    for i, row in changed.items():
        tokens[i] = int(row.argmax())
    for i, s in enumerate(sequences):
        if finite[i] and s.request.sampling.temperature > 0:
            u = uniform(s.request.sampling.seed, s.index, s.generated)
            tokens[i] = _draw(changed.get(i, logits[i]), s.request.sampling, u)
    return [
        Sampled(tokens[i], _logprob(logits[i], tokens[i], s.request.sampling)) if finite[i] else Sampled(None, None)
        for i, s in enumerate(sequences)
    ]


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (counter-based, as in Salmon et al., SC 2011)."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def _changed(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None
) -> dict[int, Tensor]:
    """Copies of the rows whose logits are not the model's own any more."""
    masked = () if mask is None else mask.rows
    adjusted = {i for i, s in enumerate(sequences) if _adjusts(s.request.sampling)}
    held_back = {i for i, s in enumerate(sequences) if s.generated < s.request.sampling.min_tokens}
    order = [*masked, *sorted((adjusted | held_back).difference(masked))]
    if not order:
        return {}
    copies = logits[order]
    changed = dict(zip(order, copies, strict=True))
    for i in adjusted:
        _adjust(changed[i], sequences[i])
    if mask is not None:
        mask.forbid(copies[: len(masked)])
    for i in held_back:
        _hold_back(changed[i], eos | sequences[i].request.sampling.stop_token_ids)
    return changed


def _adjusts(p: SamplingParams) -> bool:
    return bool(p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty or p.logit_bias)


def _adjust(row: Tensor, sequence: Sequence) -> None:
    """Bias and penalties, in place. Repetition counts prompt and completion (Keskar et al., 2019); presence and
    frequency count the completion only, as OpenAI's API does."""
    p = sequence.request.sampling
    for token, bias in p.logit_bias:
        row[token] += bias
    if p.repetition_penalty != 1:
        seen = torch.tensor(sorted(set(sequence.tokens)), device=row.device)
        values = row[seen]
        row[seen] = torch.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
    if p.presence_penalty or p.frequency_penalty:
        completion = torch.tensor(sequence.tokens[sequence.prompt_length :], dtype=torch.long, device=row.device)
        counts = torch.bincount(completion, minlength=row.shape[0]).to(row.dtype)
        row -= p.frequency_penalty * counts + p.presence_penalty * (counts > 0)


def _hold_back(row: Tensor, ends: frozenset[int]) -> None:
    """No end yet (min_tokens), unless an end is all that the grammar allows."""
    rest = row.clone()
    rest[list(ends)] = float("-inf")
    if torch.isfinite(rest).any():
        row.copy_(rest)


def _draw(row: Tensor, p: SamplingParams, u: float) -> int:
    """Temperature, then top_k, top_p and min_p (Nguyen et al., 2024, arXiv:2407.01082), then inverse CDF at u."""
    probabilities = (row.double() / p.temperature).softmax(dim=-1)
    candidates: Tensor | None = None
    if p.top_k or p.top_p < 1 or p.min_p:
        k = min(p.top_k, row.shape[0]) if p.top_k else row.shape[0]
        probabilities, candidates = probabilities.topk(k)
        keep = _kept(probabilities, p)
        probabilities = probabilities[:keep]
    cumulative = probabilities.cumsum(dim=0)
    choice = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))
    if choice == probabilities.shape[0]:  # rounded up: the last that is possible at all
        choice = int(probabilities.nonzero()[-1]) if probabilities.any() else 0
    return choice if candidates is None else int(candidates[choice])


def _kept(descending: Tensor, p: SamplingParams) -> int:
    """How many of the probabilities, largest first, survive top_p and min_p; at least one."""
    keep = descending.shape[0]
    if p.top_p < 1:
        normalised = descending / descending.sum()
        before = normalised.cumsum(dim=0) - normalised
        keep = min(keep, int((before < p.top_p).sum()))
    if p.min_p:
        keep = min(keep, int((descending >= p.min_p * descending[0]).sum()))
    return max(keep, 1)


def _logprob(row: Tensor, token: int, p: SamplingParams) -> TokenLogprob | None:
    if p.top_logprobs is None:
        return None
    logprobs = row.log_softmax(dim=-1)
    values, tokens = logprobs.topk(min(p.top_logprobs, row.shape[0]))
    return TokenLogprob(float(logprobs[token]), tuple(zip(tokens.tolist(), values.tolist(), strict=True)))
