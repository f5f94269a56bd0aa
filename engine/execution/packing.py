"""Packing of a step's tokens into one row, with the properties of each row, on the host."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.runtime.arrays import Integers
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.attention_rows import DecodeRows, PrefillRows
from loragate.kernels.segments import LONG, Segment, segments_from
from loragate.kernels.transfers import to_device

PLACES_MULTIPLE = 16  # decode gathers keys to a multiple of this, so that small growth does not change shapes
_COMPOSITIONS = 16


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Consecutive rows of logits that give the logprobs of a prompt's tokens."""

    sequence: Sequence
    rows: range  # of the step's logits
    states: range  # positions in the prompt; the logprobs are of the tokens after them

    @property
    def tokens(self) -> list[int]:
        """The tokens whose logprobs are wanted."""
        return self.sequence.tokens[self.states.start + 1 : self.states.stop + 1]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """`entries` are (sequence, tokens) in packed order: single tokens first.

    A sequence with a draft is in `sampled` once for its last token and once for each draft token after it, in order,
    matching the rows of the logits in `sampled_rows`. The other rows of logits are those in `scored`.
    """

    entries: list[tuple[Sequence, int]]
    input_ids: list[int]
    positions: Integers
    places: Integers  # places of the new keys and values in the cache
    slots: list[int]
    logit_rows: list[int]  # ascending
    sampled: list[Sequence]
    sampled_rows: list[int]
    scored: list[ScoredRows]

    @property
    def rows(self) -> int:
        return len(self.input_ids)

    @classmethod
    def from_entries(cls, entries: list[tuple[Sequence, int]]) -> "PackedRows":
        input_ids: list[int] = []
        positions: list[Integers] = [np.zeros(0, dtype=np.int64)]
        places: list[Integers] = [np.zeros(0, dtype=np.int64)]
        slots: list[int] = []
        logit_rows: list[int] = []
        sampled: list[Sequence] = []
        sampled_rows: list[int] = []
        scored: list[ScoredRows] = []
        for sequence, tokens in entries:
            start, stop = sequence.computed, sequence.computed + tokens
            states = sequence.scored_states(start, stop)
            if states:
                scored.append(ScoredRows(sequence, _next(logit_rows, len(states)), states))
                logit_rows += [len(input_ids) + state - start for state in states]
            input_ids += sequence.tokens[start:stop] + sequence.draft
            positions.append(np.arange(start, stop))
            places.append(sequence.places[start:stop])
            slots += _slots(sequence, start, stop)
            if stop >= len(sequence.tokens) and sequence.generates:
                wanted_rows = stop - len(sequence.tokens) + 1
                sampled_rows += _next(logit_rows, wanted_rows)
                logit_rows += range(len(input_ids) - wanted_rows, len(input_ids))
                sampled += [sequence] * wanted_rows
        joined = np.concatenate(positions), np.concatenate(places)
        return cls(entries, input_ids, *joined, slots, logit_rows, sampled, sampled_rows, scored)


def decode_first(rows: Iterable[tuple[Sequence, int]]) -> list[tuple[Sequence, int]]:
    """Return the packed order of a step: single rows, then chunks, each sorted by slot so that segments are runs."""
    return sorted(rows, key=lambda item: (item[1] > 1, item[0].slot, item[0].arrival))


class SegmentCache:
    """Returns the identical tuple while the composition of the batch stays, so that prepared work can be reused.

    If `batch_invariant`, segments are cut, so that all are computed with the tiling of decode.
    """

    def __init__(self, *, batch_invariant: bool = False) -> None:
        self._batch_invariant = batch_invariant
        self._known: dict[bytes, tuple[Segment, ...]] = {}

    def get(self, slots: list[int]) -> tuple[Segment, ...]:
        """Return the runs of equal slots, without base-only rows."""
        numbers = np.array(slots, dtype=np.int32)
        known = self._known.get(numbers.tobytes())
        if known is None:
            if len(self._known) >= _COMPOSITIONS:
                self._known.clear()
            found = segments_from(numbers)
            known = self._known[numbers.tobytes()] = _cut(found) if self._batch_invariant else found
        return known


def build_batch(
    packed: PackedRows, device: torch.device, segments: SegmentCache, *, batch_invariant: bool = False
) -> StepBatch:
    """Return the step's batch in its actual size.

    If no sequence reaches the end of its tokens, the last row's logits are computed and ignored. If `batch_invariant`,
    single tokens are chunks of prefill, because decode sums in another order.
    """
    singles = [] if batch_invariant else [s for s, tokens in packed.entries if tokens == 1]
    prefills, row = [], len(singles)
    for sequence, tokens in packed.entries[len(singles) :]:
        keys = to_device(sequence.places[: sequence.computed + tokens], device)
        prefills.append(PrefillRows(row, row + tokens, sequence.computed, keys))
        row += tokens
    wanted = packed.logit_rows or [packed.rows - 1]
    return StepBatch(
        input_ids=to_device(packed.input_ids, device),
        positions=to_device(packed.positions, device),
        write_places=to_device(packed.places, device),
        decode=_decode_rows(singles, device) if singles else None,
        prefills=tuple(prefills),
        segments=segments.get(packed.slots),
        logit_rows=to_device(wanted, device),
        logit_segments=segments.get([packed.slots[row] for row in wanted]),
    )


def _cut(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Cut segments into pieces that are too short for the tiling of prefill."""
    piece = LONG // 2
    return tuple(
        Segment(segment.slot, start, min(start + piece, segment.stop))
        for segment in segments
        for start in range(segment.start, segment.stop, piece)
    )


def _next(rows: list[int], count: int) -> range:
    """Return the places of rows that are about to be appended."""
    return range(len(rows), len(rows) + count)


def _slots(sequence: Sequence, start: int, stop: int) -> list[int]:
    """Return the slots of the tokens [start, stop): the base model's until the adapter is in effect."""
    without = min(max(sequence.adapter_from - start, 0), stop - start)
    return [-1] * without + [sequence.slot] * (stop - start - without)


def _decode_rows(sequences: list[Sequence], device: torch.device) -> DecodeRows:
    lengths = [s.computed + 1 for s in sequences]
    longest = -(-max(lengths) // PLACES_MULTIPLE) * PLACES_MULTIPLE
    places = np.zeros((len(sequences), longest), dtype=np.int64)
    for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        places[row, :length] = sequence.places[:length]
    return DecodeRows(to_device(places, device), to_device(lengths, device))
