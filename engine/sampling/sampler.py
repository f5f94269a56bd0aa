"""Sampling on the device, from logits to tokens.

It is deterministic given (seed, index, position): the same request gives the same tokens regardless of the rest of the
batch, and continues identically after a preemption, because no generator state is kept.
"""

import hashlib
import struct
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sampling.grammar_mask import TokenMask
from loragate.engine.sampling.logits_processors import adjust, adjusts, forbid_ends
from loragate.engine.sampling.random_sampling import draw, select_rows
from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.transfers import to_device

NOT_FINITE = -1  # no token
# As many as APIs return, so that the order of ties does not depend on what other requests ask for.
USUAL_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    token: int | None
    logprob: TokenLogprob | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The next tokens of some rows of logits, on the device.

    `top` maps the rows with logprobs to the number of most probable tokens that each one wants.
    """

    tokens: Tensor  # [rows], NOT_FINITE where there is none
    top: dict[int, int]
    logprobs: tuple[Tensor, ...] = ()  # of the token [n], the largest [n, k], and the tokens of these [n, k]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tokens, *self.logprobs)

    def to_samples(self, tensors: Seq[Tensor]) -> list[Sampled]:
        """Return the samples, given copies of `tensors` in host memory."""
        tokens, *logprobs = tensors
        known = dict(zip(self.top, self._each(*logprobs), strict=True)) if logprobs else {}
        return [
            Sampled(None, None) if token == NOT_FINITE else Sampled(token, known.get(row))
            for row, token in enumerate(tokens.tolist())
        ]

    def _each(self, own: Tensor, largest: Tensor, theirs: Tensor) -> Iterator[TokenLogprob]:
        for n, each, values, ids in zip(
            self.top.values(), own.tolist(), largest.tolist(), theirs.tolist(), strict=True
        ):
            yield TokenLogprob(each, tuple(zip(ids[:n], values[:n], strict=True)))


@torch.inference_mode()
def choose(logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None) -> Chosen:
    """Choose a token for each row of logits [rows, vocabulary]. Rows outside the mask are not restricted.

    Nothing in it waits for the device.
    """
    logits = logits.float()
    tokens = logits.argmax(dim=-1)
    places, changed = _changed_rows(logits, sequences, eos, mask)
    if places:
        _put(tokens, list(places), changed.argmax(dim=-1))
    drawn = {i for i, s in enumerate(sequences) if s.request.sampling.temperature > 0}
    own, theirs = sorted(drawn.difference(places)), [i for i in places if i in drawn]
    if own:
        _put(tokens, own, _drawn(select_rows(logits, own), [sequences[i] for i in own]))
    if theirs:
        _put(tokens, theirs, _drawn(select_rows(changed, [places[i] for i in theirs]), [sequences[i] for i in theirs]))
    tokens = tokens.where(_are_finite(logits), NOT_FINITE)
    top = {i: n for i, s in enumerate(sequences) if (n := s.request.sampling.top_logprobs) is not None}
    return Chosen(tokens, top, _logprobs(logits, tokens, top) if top else ())


def sample(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None
) -> list[Sampled]:
    """Choose tokens and read them at once."""
    chosen = choose(logits, sequences, eos, mask)
    return chosen.to_samples(chosen.tensors)


def uniform(seed: int, index: int, position: int) -> float:
    """Return a number in [0, 1) that depends only on its arguments (counter-based, as in Salmon et al., SC 2011)."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def _are_finite(logits: Tensor) -> Tensor:
    """Return whether all numbers of each row are finite: [rows]. A NaN is both the least and the largest."""
    least, largest = logits.aminmax(dim=-1)
    return torch.isfinite(least) & torch.isfinite(largest)


def _put(tokens: Tensor, rows: list[int], values: Tensor) -> None:
    tokens.index_copy_(0, to_device(rows, tokens.device), values)


def _changed_rows(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None
) -> tuple[dict[int, int], Tensor]:
    """Return the indices of the rows whose logits are changed, and their changed copies."""
    masked = () if mask is None else mask.rows
    adjusted = {i for i, s in enumerate(sequences) if adjusts(s.request.sampling)}
    held_back = {i for i, s in enumerate(sequences) if s.generated < s.request.sampling.min_tokens}
    places = {row: place for place, row in enumerate([*masked, *sorted((adjusted | held_back).difference(masked))])}
    if not places:
        return places, logits[:0]
    copies = logits.index_select(0, to_device(list(places), logits.device))
    adjust(copies, {places[i]: sequences[i] for i in adjusted})
    if mask is not None:
        mask.forbid(copies[: len(masked)])
    if held_back:
        forbid_ends(copies, {places[i]: eos | sequences[i].request.sampling.stop_token_ids for i in held_back})
    return places, copies


def _drawn(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    uniforms = [uniform(s.request.sampling.seed, s.index, s.generated) for s in sequences]
    return draw(logits, [s.request.sampling for s in sequences], uniforms)


def _logprobs(logits: Tensor, tokens: Tensor, top: dict[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logprobs of the rows that want them, from the model's unchanged logits."""
    rows = list(top)
    of_rows = select_rows(logits, rows).log_softmax(dim=-1)
    own = of_rows.gather(1, select_rows(tokens, rows).clamp(min=0)[:, None])[:, 0]
    largest, theirs = of_rows.topk(min(max(USUAL_LOGPROBS, *top.values()), logits.shape[1]))
    return own, largest, theirs
