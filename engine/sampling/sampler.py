"""From logits to tokens, on the device. Deterministic given (seed, index, position): the same request gives the same
tokens whatever else is in the batch, and goes on rightly after a preemption, because no generator state is kept."""

import hashlib
import struct
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sampling.grammar_mask import TokenMask
from loragate.engine.sampling.logits_processors import adjust, adjusts, hold_back
from loragate.engine.sampling.random_sampling import draw, rows_of
from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.host_to_device import to_device

NOT_FINITE = -1  # no token
_USUAL_LOGPROBS = 20  # as many as APIs give: how ties end does not depend on what neighbours ask for


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    token: int | None
    logprob: TokenLogprob | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The next tokens of some rows of logits, on the device. `most` says of which rows the logprobs are, and how many
    of the most probable tokens each wants."""

    tokens: Tensor  # [rows], NOT_FINITE where there is none
    most: dict[int, int]
    logprobs: tuple[Tensor, ...] = ()  # the token's [n], the largest [n, k], and whose these are [n, k]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tokens, *self.logprobs)

    def told(self, tensors: Seq[Tensor]) -> list[Sampled]:
        """What these say, in memory of the host."""
        tokens, *logprobs = tensors
        known = dict(zip(self.most, self._each(*logprobs), strict=True)) if logprobs else {}
        return [
            Sampled(None, None) if token == NOT_FINITE else Sampled(token, known.get(row))
            for row, token in enumerate(tokens.tolist())
        ]

    def _each(self, own: Tensor, largest: Tensor, theirs: Tensor) -> Iterator[TokenLogprob]:
        for n, each, values, ids in zip(
            self.most.values(), own.tolist(), largest.tolist(), theirs.tolist(), strict=True
        ):
            yield TokenLogprob(each, tuple(zip(ids[:n], values[:n], strict=True)))


@torch.inference_mode()
def choose(logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None) -> Chosen:
    """A token for each row of logits [rows, vocabulary]. Rows outside the mask are as if there were none.

    Nothing is asked of the device that the host would have to wait for.
    """
    logits = logits.float()
    tokens = logits.argmax(dim=-1)
    places, changed = _changed(logits, sequences, eos, mask)
    if places:
        _put(tokens, list(places), changed.argmax(dim=-1))
    drawn = {i for i, s in enumerate(sequences) if s.request.sampling.temperature > 0}
    own, theirs = sorted(drawn.difference(places)), [i for i in places if i in drawn]
    if own:
        _put(tokens, own, _drawn(rows_of(logits, own), [sequences[i] for i in own]))
    if theirs:
        _put(tokens, theirs, _drawn(rows_of(changed, [places[i] for i in theirs]), [sequences[i] for i in theirs]))
    tokens = tokens.where(torch.isfinite(logits).all(dim=-1), NOT_FINITE)
    most = {i: n for i, s in enumerate(sequences) if (n := s.request.sampling.top_logprobs) is not None}
    return Chosen(tokens, most, _logprobs(logits, tokens, most) if most else ())


def sample(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None = None
) -> list[Sampled]:
    """The same, told at once."""
    chosen = choose(logits, sequences, eos, mask)
    return chosen.told(chosen.tensors)


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (counter-based, as in Salmon et al., SC 2011)."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def _put(tokens: Tensor, rows: list[int], values: Tensor) -> None:
    tokens.index_copy_(0, to_device(rows, tokens.device), values)


def _changed(
    logits: Tensor, sequences: Seq[Sequence], eos: frozenset[int], mask: TokenMask | None
) -> tuple[dict[int, int], Tensor]:
    """Copies of the rows whose logits are not the model's own any more, and where each row is among them."""
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
        hold_back(copies, {places[i]: eos | sequences[i].request.sampling.stop_token_ids for i in held_back})
    return places, copies


def _drawn(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    uniforms = [uniform(s.request.sampling.seed, s.index, s.generated) for s in sequences]
    return draw(logits, [s.request.sampling for s in sequences], uniforms)


def _logprobs(logits: Tensor, tokens: Tensor, most: dict[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Of the rows that want them: the model's own, whatever changed its logits."""
    rows = list(most)
    of_rows = rows_of(logits, rows).log_softmax(dim=-1)
    own = of_rows.gather(1, rows_of(tokens, rows).clamp(min=0)[:, None])[:, 0]
    largest, theirs = of_rows.topk(min(max(_USUAL_LOGPROBS, *most.values()), logits.shape[1]))
    return own, largest, theirs
