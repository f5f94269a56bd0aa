"""Attention rows."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What a model's attention layer asks for beyond plain causal attention."""

    scale: float
    window: int | None = None  # a query sees keys at distance < window
    softcap: float | None = None
    sinks: Tensor | None = None  # [heads]


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The first `len(lengths)` rows of the batch: one new token of each of as many sequences.

    token_places [sequences, longest] gives where each key lies in the cache; places past a sequence's length
    point at the null place, which holds zeros. lengths [sequences] count the new token.
    """

    token_places: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """Rows [start, stop) of the batch: a chunk of one sequence's prompt, `context` tokens of which came before.

    token_places [context + stop − start]: where its keys lie in the cache.
    """

    start: int
    stop: int
    context: int
    token_places: Tensor


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """All rows of a batch of fixed size, in memory of the device that each step fills anew: no launch depends on what
    it holds. Row i is sequence i's new token where `lengths` says so; the rows of chunks are in tiles.

    tables [sequences, pages]: which pages of the cache, of `page` places each, hold a sequence's tokens.
    lengths [sequences]: tokens of those that decode, the new one included; 0 for all others.
    tiles [tiles, 4]: first row, rows, first position and sequence; no rows where a tile is not needed.
    owners and positions [rows]: whose token each row is, and its place in the sequence.
    """

    tables: Tensor
    lengths: Tensor
    tiles: Tensor
    owners: Tensor
    positions: Tensor
    page: int
    tile_rows: int  # at most
