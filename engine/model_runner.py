"""Packs the scheduled tokens into one row, runs the model over it, and gives back the logits that were asked for."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.engine.base_model import BaseModel
from loragate.engine.pooling import diverted
from loragate.engine.scheduler import decode_first
from loragate.engine.sequence import Sequence
from loragate.engine.step import StepBatch
from loragate.kernels.paged_attention import DecodeRows, PrefillRows
from loragate.kernels.segmented_lora import Segment, segments_of

_COMPOSITIONS = 16
PLACES_MULTIPLE = 16  # decode gathers keys to a multiple of this, so that small growth does not change shapes


class ModelRunner:
    def __init__(self, base: BaseModel) -> None:
        self._base = base
        self._segments = SegmentMemory()
        self._head = base.model.get_output_embeddings()

    @property
    def embeds(self) -> bool:
        """Sequences with pooling can be computed: it is known where the model makes logits of its final states."""
        return self._head is not None

    def check_device(self) -> None:
        """Raises torch.AcceleratorError when it answers no more, as after an access to what is not there (CUDA C++
        Programming Guide, "Error Checking"): only a new process can compute on it then."""
        if self._base.device.type == "cuda":
            torch.cuda.synchronize(self._base.device)

    @torch.inference_mode()
    def execute(self, scheduled: Mapping[Sequence, int]) -> tuple[Tensor, list[Sequence]]:
        """Compute the scheduled tokens: logits [samples, vocabulary] and the sequence of each row. Those with pooling
        have their states added to what they pooled."""
        rows = decode_first(scheduled.items())
        batch, sampled = pack(rows, self._base.device, self._segments)
        pooled = _pooled_rows(rows)
        with self._base.step.running(batch):
            logits = self._pool(batch, pooled) if pooled else self._logits(batch, batch.logit_rows)
        return logits[: len(sampled)], sampled

    def _logits(self, batch: StepBatch, kept: Tensor) -> Tensor:
        """`kept` are the rows whose final states go to the head."""
        logits: Tensor = self._base.model(
            input_ids=batch.input_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=kept,
        ).logits[0]
        return logits

    def _pool(self, batch: StepBatch, pooled: list[tuple[Sequence, int, range]]) -> Tensor:
        """The states of pooled rows come with those of the logits' rows, and never reach the head."""
        rows = [row for _, _, rows in pooled for row in rows]
        kept = torch.cat([batch.logit_rows, torch.tensor(rows, device=batch.logit_rows.device)])
        with diverted(self._head, batch.logit_rows.shape[0]) as states:
            logits = self._logits(batch, kept)
        parts = states[0].split([len(rows) for _, _, rows in pooled])
        for (sequence, start, _), part in zip(pooled, parts, strict=True):
            assert sequence.pooled is not None
            sequence.pooled.add(part, start)
        return logits


class SegmentMemory:
    """Gives out the identical tuple for as long as the composition of the batch stays: what tables have prepared
    for it then serves again."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Segment, ...]] = {}

    def of(self, slots: list[int]) -> tuple[Segment, ...]:
        """Runs of equal slots, base-only rows left out."""
        numbers = np.array(slots, dtype=np.int32)
        known = self._known.get(numbers.tobytes())
        if known is None:
            if len(self._known) >= _COMPOSITIONS:
                self._known.clear()
            known = self._known[numbers.tobytes()] = segments_of(numbers)
        return known


def pack(
    rows: list[tuple[Sequence, int]], device: torch.device, segments: SegmentMemory
) -> tuple[StepBatch, list[Sequence]]:
    """Build the step's batch from (sequence, tokens) in packed order, and say whose logits will come out.

    A sequence with a draft occurs once for its last token and once for each guess behind it, in order. If no
    sequence reaches the end of its tokens, the last row's logits are computed all the same and ignored.
    """
    singles = [s for s, tokens in rows if tokens == 1]
    input_ids: list[int] = []
    positions: list[npt.NDArray[np.int64]] = []
    places: list[npt.NDArray[np.int64]] = []
    prefills: list[PrefillRows] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    sampled: list[Sequence] = []
    for sequence, tokens in rows:
        start, stop = sequence.computed, sequence.computed + tokens
        if tokens > 1:
            keys = torch.from_numpy(sequence.places[:stop].copy()).to(device)
            prefills.append(PrefillRows(len(input_ids), len(input_ids) + tokens, start, keys))
        input_ids += sequence.tokens[start:stop] + sequence.draft
        positions.append(np.arange(start, stop))
        places.append(sequence.places[start:stop])
        slots += _slots(sequence, start, stop)
        if stop >= len(sequence.tokens) and sequence.pooled is None:
            wanted_rows = stop - len(sequence.tokens) + 1
            logit_rows += range(len(input_ids) - wanted_rows, len(input_ids))
            sampled += [sequence] * wanted_rows
    wanted = logit_rows or [len(input_ids) - 1]
    batch = StepBatch(
        input_ids=torch.tensor(input_ids, device=device),
        positions=torch.from_numpy(np.concatenate(positions)).to(device),
        write_places=torch.from_numpy(np.concatenate(places)).to(device),
        decode=_decode_rows(singles, device) if singles else None,
        prefills=tuple(prefills),
        segments=segments.of(slots),
        logit_rows=torch.tensor(wanted, device=device),
        logit_segments=segments.of([slots[row] for row in wanted]),
    )
    return batch, sampled


def _pooled_rows(rows: list[tuple[Sequence, int]]) -> list[tuple[Sequence, int, range]]:
    """Of the packed order: which sequences pool, from which of their positions on, and the step's rows for that."""
    found, packed = [], 0
    for sequence, tokens in rows:
        if sequence.pooled is not None:
            wanted = sequence.pooled.wanted(sequence.computed, sequence.computed + tokens)
            if wanted:
                offset = packed - sequence.computed
                found.append((sequence, wanted.start, range(offset + wanted.start, offset + wanted.stop)))
        packed += tokens
    return found


def _slots(sequence: Sequence, start: int, stop: int) -> list[int]:
    """Of the tokens [start, stop): the base model's until the adapter is in effect."""
    without = min(max(sequence.adapter_from - start, 0), stop - start)
    return [-1] * without + [sequence.slot] * (stop - start - without)


def _decode_rows(sequences: list[Sequence], device: torch.device) -> DecodeRows:
    lengths = [s.computed + 1 for s in sequences]
    longest = -(-max(lengths) // PLACES_MULTIPLE) * PLACES_MULTIPLE
    places = np.zeros((len(sequences), longest), dtype=np.int64)
    for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        places[row, :length] = sequence.places[:length]
    return DecodeRows(torch.from_numpy(places).to(device), torch.tensor(lengths, device=device))
