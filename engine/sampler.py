"""From logits to tokens. Deterministic given (seed, index, position): the same request gives the same tokens whatever
else is in the batch, and goes on rightly after a preemption, because no generator state is kept."""

import hashlib
import struct
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.drawing import draw, rows_of
from loragate.engine.sequence import SamplingParams, Sequence, TokenLogprob
from loragate.engine.token_mask import TokenMask

_NOT_FINITE = -1  # no token
_USUAL_LOGPROBS = 20  # as many as APIs give: how ties end does not depend on what neighbours ask for


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    token: int | None
    logprob: TokenLogprob | None


def sample(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None
) -> list[Sampled]:
    """Choose a token for each row of logits [rows, vocabulary]. Rows outside the mask are as if there were none.

    Everything is asked of the device before its first answer is waited for.
    """
    logits = logits.float()
    tokens = logits.argmax(dim=-1)
    places, changed = _changed(logits, sequences, eos, mask)
    if places:
        tokens[list(places)] = changed.argmax(dim=-1)
    drawn = {i for i, s in enumerate(sequences) if s.request.sampling.temperature > 0}
    own, theirs = sorted(drawn.difference(places)), [i for i in places if i in drawn]
    if own:
        tokens[own] = _drawn(rows_of(logits, own), [sequences[i] for i in own])
    if theirs:
        tokens[theirs] = _drawn(rows_of(changed, [places[i] for i in theirs]), [sequences[i] for i in theirs])
    tokens = tokens.where(torch.isfinite(logits).all(dim=-1), _NOT_FINITE)
    logprobs = _logprobs(logits, tokens, sequences)
    return [
        Sampled(None, None) if token == _NOT_FINITE else Sampled(token, logprobs.get(i))
        for i, token in enumerate(tokens.tolist())
    ]


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (counter-based, as in Salmon et al., SC 2011)."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def _changed(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None
) -> tuple[dict[int, int], Tensor]:
    """Copies of the rows whose logits are not the model's own any more, and where each row is among them."""
    masked = () if mask is None else mask.rows
    adjusted = {i for i, s in enumerate(sequences) if _adjusts(s.request.sampling)}
    held_back = {i for i, s in enumerate(sequences) if s.generated < s.request.sampling.min_tokens}
    places = {row: place for place, row in enumerate([*masked, *sorted((adjusted | held_back).difference(masked))])}
    copies = logits[list(places)]
    for i in adjusted:
        _adjust(copies[places[i]], sequences[i])
    if mask is not None:
        mask.forbid(copies[: len(masked)])
    for i in held_back:
        _hold_back(copies[places[i]], eos | sequences[i].request.sampling.stop_token_ids)
    return places, copies


def _adjusts(p: SamplingParams) -> bool:
    return bool(p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty or p.logit_bias)


def _adjust(row: Tensor, sequence: Sequence) -> None:
    """Bias and penalties, in place. Repetition counts prompt and completion (Keskar et al., 2019); presence and
    frequency count the completion only, as OpenAI's API does."""
    p = sequence.request.sampling
    if p.logit_bias:
        biased, biases = zip(*p.logit_bias, strict=True)
        row[list(biased)] += torch.tensor(biases, device=row.device)
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
    row.copy_(rest.where(torch.isfinite(rest).any(), row))


def _drawn(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    uniforms = [uniform(s.request.sampling.seed, s.index, s.generated) for s in sequences]
    return draw(logits, [s.request.sampling for s in sequences], uniforms)


def _logprobs(logits: Tensor, tokens: Tensor, sequences: Seq[Sequence]) -> dict[int, TokenLogprob]:
    """Of the rows that want them: the model's own, whatever changed its logits."""
    most = {i: n for i, s in enumerate(sequences) if (n := s.request.sampling.top_logprobs) is not None}
    if not most:
        return {}
    rows = list(most)
    of_rows = rows_of(logits, rows).log_softmax(dim=-1)
    chosen = of_rows.gather(1, tokens[rows].clamp(min=0)[:, None])[:, 0]
    largest, theirs = of_rows.topk(min(max(_USUAL_LOGPROBS, *most.values()), logits.shape[1]))
    each = zip(most.items(), chosen.tolist(), theirs.tolist(), largest.tolist(), strict=True)
    return {i: TokenLogprob(own, tuple(zip(ids[:n], values[:n], strict=True))) for (i, n), own, ids, values in each}
