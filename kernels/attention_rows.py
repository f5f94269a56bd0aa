"""Data types that describe the rows of a batch to the attention kernels."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of a model's attention layer beyond plain causal attention."""

    scale: float
    window: int | None = None  # a query sees keys at a distance below `window`
    softcap: float | None = None
    sinks: Tensor | None = None  # [heads]


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The first `len(lengths)` rows of the batch: one new token for each sequence that decodes.

    token_places [sequences, longest] holds the place of each key in the cache; entries past a sequence's length point
    to the null place, which holds zeros. lengths [sequences] include the new token.
    """

    token_places: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """Rows [start, stop) of the batch: a chunk of one sequence's prompt, preceded by `context` computed tokens.

    token_places [context + stop − start] holds the places of its keys in the cache.
    """

    start: int
    stop: int
    context: int
    token_places: Tensor


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """All rows of a batch of fixed size, in device memory that every step rewrites.

    No launch depends on the contents. Row i is the new token of sequence i where `lengths` is positive; the rows of
    prefill chunks are in tiles.

    tables [sequences, pages], int32: the cache pages, of `page` places each, that hold a sequence's tokens. lengths
    [sequences]: tokens of each decoding sequence, including the new one; 0 for all others. tiles [tiles, 4]: first row,
    rows, first position and sequence; an unused tile has no rows. owners and positions [rows]: the sequence that each
    row belongs to, and its position in that sequence.
    """

    tables: Tensor
    lengths: Tensor
    tiles: Tensor
    owners: Tensor
    positions: Tensor
    page: int
    tile_rows: int  # maximum
