"""Steps of fixed sizes for captured graphs.

Everything that a step computes is written to device memory at fixed addresses, so that one capture of the model's
launches serves every step of its size (NVIDIA, "CUDA C++ Programming Guide", "CUDA Graphs"; vLLM and SGLang pad their
decode batches in the same way). A whole step is transferred in one copy. Padding rows are token 0 at position 0,
written to a scratch page; they are in no tile, and so have no adapter.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from loragate.engine.execution.packing import PackedRows
from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.runtime.arrays import Integers
from loragate.kernels import gpu
from loragate.kernels.attention_rows import PaddedRows
from loragate.kernels.segments import FixedSegments, Segment, segments_from

if gpu.available():
    from loragate.kernels.segments import (
        DECODE,
        LONG,
        PREFILL,
        TILE_FIELDS,
        UNUSED_SLOT,
        Work,
        by_tiling,
        cut_into_tiles,
    )

if TYPE_CHECKING:
    from loragate.kernels.segments import Tiling

_STEP = 32  # minimum rows between sizes with prefill
_TILE = 16  # minimum rows of a full tile of any kind

Memory = TypeVar("Memory", Tensor, Integers)


def sizes(max_rows: int, sequences: int) -> list[int]:
    """Return the sizes that steps of up to `max_rows` rows are padded to.

    They are close together for decode steps, which have at most `sequences` rows.
    """
    found = [1, 2, 4, *range(8, sequences, 8), sequences]
    while found[-1] < max_rows:
        found.append((found[-1] + max(_STEP, found[-1] // 4)) // _STEP * _STEP)
    return sorted({min(size, max_rows) for size in found})


@dataclass(frozen=True, slots=True)
class PaddedShape:
    """The capacity of a step of one size."""

    rows: int
    sequences: int
    logits: int  # rows that go to the head; equal to `rows` if all of them do
    pages: int  # per sequence
    page: int  # places per page
    tile_rows: int  # rows of an attention tile
    dtype: torch.dtype
    scratch: int  # the place in the cache for the keys and values of padding rows
    batch_invariant: bool = False  # single tokens are chunks of prefill, and all segments have the tiling of decode

    @property
    def fields(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the step's numbers, side by side; the one that steps fill least comes last."""
        per_row = dict.fromkeys(("input_ids", "positions", "write_places", "slots", "owners"), (self.rows,))
        lora = {f"tiles of {tiling.rows}": (count, TILE_FIELDS) for tiling, count in self._lora_tiles.items()}
        head = {"logit_rows": (self.logits,), "logit_slots": (self.logits,), "logit_tiles": (self.logits, TILE_FIELDS)}
        return (
            per_row
            | {"lengths": (self.sequences,), "attention_tiles": (self._attention_tiles, 4)}
            | lora
            | (head if self.logits < self.rows else {})
            | {"tables": (self.sequences, self._table_numbers)}
        )

    @property
    def numbers(self) -> int:
        return self.numbers_for(self.sequences)

    def numbers_for(self, sequences: int) -> int:
        """Return the numbers of a step with this many sequences, whose tables are its last part."""
        return sum(prod(shape) for shape in self.fields.values()) - (self.sequences - sequences) * self._table_numbers

    @property
    def _table_numbers(self) -> int:
        """The numbers that a sequence's table takes, with two pages in each."""
        return -(-self.pages // 2)

    @property
    def _attention_tiles(self) -> int:
        if self._only_decodes:
            return 0
        chunks = self.rows if self.batch_invariant else self.rows // 2  # at most
        return self.rows // self.tile_rows + min(self.sequences, chunks)

    @property
    def _only_decodes(self) -> bool:
        """Whether the step has no launches for prefill: each row is the new token of a sequence."""
        return self.rows <= self.sequences and not self.batch_invariant

    @property
    def _lora_tiles(self) -> "dict[Tiling, int]":
        """Maximum tiles by tiling. A sequence is at most one segment, whose last tile may be nearly empty."""
        long = 2 * (self.rows // LONG) if self._has_prefill and self.dtype != torch.float32 else 0
        counts = {DECODE: min(self.rows, self.rows // _TILE + self.sequences), PREFILL: long}
        return {tiling: count for tiling, count in counts.items() if count}

    @property
    def _has_prefill(self) -> bool:
        """Whether the step has LoRA launches for long prompts, which steps of single tokens skip."""
        return self.rows > self.sequences and not self.batch_invariant

    def views(self, memory: Memory) -> dict[str, Memory]:
        """Return the fields within a vector of all numbers, or of fewer if it has tables for fewer sequences.

        Tables are int32, because they are most of what a step sends.
        """
        found, start = {}, 0
        for name, shape in self.fields.items():
            found[name] = memory[start : start + prod(shape)].reshape(-1, *shape[1:])
            start += prod(shape)
        tables = found["tables"]
        found["tables"] = tables.view(torch.int32 if isinstance(tables, Tensor) else np.int32)
        return found

    def takes(self, packed: PackedRows) -> bool:
        """Return whether the step fits."""
        fits = packed.rows <= self.rows and len(packed.entries) <= self.sequences
        if self._only_decodes and packed.rows != len(packed.entries):
            return False
        return fits and len(packed.logit_rows) <= self.logits

    def fill(self, memory: Integers, packed: PackedRows) -> None:
        """Write the step into a vector with tables for its sequences.

        Pages that these do not have are not written: they are zeros, or anything for GPU kernels, which do not read
        them. With long contexts they are most of the table.
        """
        memory[: self.numbers_for(0)] = 0
        f, rows = self.views(memory), packed.rows
        f["input_ids"][:rows] = packed.input_ids
        f["positions"][:rows] = packed.positions
        f["write_places"][:] = self.scratch
        f["write_places"][:rows] = packed.places
        f["slots"][:] = -1
        f["slots"][:rows] = packed.slots
        _put(f["attention_tiles"], list(self._fill_sequences(f, packed)))
        for tiling, segments in by_tiling(_segments(packed.slots), self.dtype, prefill=self._has_prefill).items():
            if tiling in self._lora_tiles:
                _put_tiles(f[f"tiles of {tiling.rows}"], segments, tiling.rows)
        if self.logits < self.rows:
            wanted = packed.logit_rows
            slots = [packed.slots[row] for row in wanted]
            f["logit_rows"][: len(wanted)] = wanted
            f["logit_slots"][:] = -1
            f["logit_slots"][: len(wanted)] = slots
            _put_tiles(f["logit_tiles"], _segments(slots), DECODE.rows)

    def _fill_sequences(self, f: dict[str, Integers], packed: PackedRows) -> Iterator[tuple[int, int, int, int]]:
        """Fill tables, lengths and owners, and yield the attention tiles."""
        row = 0
        for index, (sequence, tokens) in enumerate(packed.entries):
            start, stop = sequence.computed, sequence.computed + tokens
            used = -(-stop // self.page)
            f["tables"][index, :used] = sequence.places[: stop : self.page] // self.page
            f["owners"][row : row + tokens] = index
            if tokens == 1 and not self.batch_invariant:
                f["lengths"][index] = stop
            else:
                for at in range(0, tokens, self.tile_rows):
                    yield row + at, min(self.tile_rows, tokens - at), start + at, index
            row += tokens

    def batch(self, memory: Tensor, *, adapted: bool) -> StepBatch:
        """Return the batch in such a vector on the device, with the contents at the time it is computed.

        Unless it is `adapted`, all rows are the base model's.
        """
        f = self.views(memory)
        segments = FixedSegments(f["slots"], tuple(Work(f[f"tiles of {t.rows}"], t) for t in self._lora_tiles))
        if self.logits < self.rows:
            logit_rows = f["logit_rows"]
            logit_segments = FixedSegments(f["logit_slots"], (Work(f["logit_tiles"], DECODE),))
        else:
            logit_rows, logit_segments = torch.arange(self.rows, device=memory.device), segments
        return StepBatch(
            f["input_ids"],
            f["positions"],
            f["write_places"],
            decode=None,
            prefills=(),
            segments=segments if adapted else (),
            logit_rows=logit_rows,
            logit_segments=logit_segments if adapted else (),
            padded=PaddedRows(
                f["tables"],
                f["lengths"],
                f["attention_tiles"],
                f["owners"],
                f["positions"],
                self.page,
                self.tile_rows,
            ),
        )


def _segments(slots: list[int]) -> tuple[Segment, ...]:
    return segments_from(slots) if slots else ()


def _put_tiles(field: Integers, segments: Iterable[Segment], rows: int) -> None:
    field[:, 0] = UNUSED_SLOT
    _put(field, cut_into_tiles(segments, rows))


def _put(field: Integers, tiles: Sequence[tuple[int, ...]]) -> None:
    if tiles:
        field[: len(tiles)] = np.array(tiles)
