"""From logits to tokens. Deterministic given (seed, index, position): the same request gives the same tokens whatever
else is in the batch, and goes on rightly after a preemption, because no generator state is kept."""

import hashlib
import struct
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sequence import SamplingParams, Sequence, TokenLogprob


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    token: int | None
    logprob: TokenLogprob | None


def sample(logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int]) -> list[Sampled]:
    """Choose a token for each row of logits [rows, vocabulary]."""
    logits = logits.float()
    finite = torch.isfinite(logits).all(dim=-1).tolist()
    raw = logits
    adjusted = [i for i, s in enumerate(sequences) if _adjusts(s, eos)]
    if adjusted:
        logits = logits.clone()
        for i in adjusted:
            _adjust(logits[i], sequences[i], eos)
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for i, s in enumerate(sequences):
        if finite[i] and s.request.sampling.temperature > 0:
            tokens[i] = _draw(logits[i], s.request.sampling, uniform(s.request.sampling.seed, s.index, s.generated))
    return [
        Sampled(tokens[i], _logprob(raw[i], tokens[i], s.request.sampling)) if finite[i] else Sampled(None, None)
        for i, s in enumerate(sequences)
    ]


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (counter-based, as in Salmon et al., SC 2011)."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def _adjusts(sequence: Sequence, eos: frozenset[int]) -> bool:
    p = sequence.request.sampling
    return bool(
        p.repetition_penalty != 1
        or p.presence_penalty
        or p.frequency_penalty
        or p.logit_bias
        or (sequence.generated < p.min_tokens and (eos or p.stop_token_ids))
    )


def _adjust(row: Tensor, sequence: Sequence, eos: frozenset[int]) -> None:
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
    if sequence.generated < p.min_tokens:
        row[list(eos | p.stop_token_ids)] = float("-inf")


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
    choice = min(choice, probabilities.shape[0] - 1)
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
