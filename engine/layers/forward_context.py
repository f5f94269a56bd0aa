"""The forward context: the batch that the model computes, packed into one row of tokens, for modules to find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from loragate.kernels.attention_rows import DecodeRows, PaddedRows, PrefillRows
from loragate.kernels.segmented_lora import DEFAULT_OPTIONS, LoraOptions
from loragate.kernels.segments import Segments


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The input of one forward pass.

    Decode rows come first, then the chunks of prefill. Each part is sorted by adapter slot, so that a slot's rows form
    at most two segments, except for adapters that are in effect only from some token on.
    """

    input_ids: Tensor  # [rows]; LastTokens hold some of them
    positions: Tensor  # [rows]
    write_places: Tensor  # [rows], places of the new keys and values in the cache
    decode: DecodeRows | None
    prefills: tuple[PrefillRows, ...]
    segments: Segments
    logit_rows: Tensor  # [samples], rows whose next token is needed, ascending
    logit_segments: Segments  # the same segments over those rows
    padded: PaddedRows | None = None  # in place of `decode` and `prefills`: a batch of fixed size

    @property
    def rows(self) -> int:
        return self.input_ids.shape[0]

    def segments_for(self, rows: int) -> Segments:
        """Return the segments over the rows that a module was given: all of them, or those that the head computes."""
        if rows == self.rows:
            return self.segments
        assert rows == self.logit_rows.shape[0], "a module was handed rows of its own choosing"
        return self.logit_segments


class ForwardContext:
    """The batch that the model computes now, for the attention and LoRA modules inside it."""

    def __init__(self, *, batch_invariant: bool = False, lora: LoraOptions = DEFAULT_OPTIONS) -> None:
        self.batch_invariant = batch_invariant  # whether a row's last bits must not depend on the rest of the batch
        self.lora = lora
        self._batch: StepBatch | None = None
        self._called: set[tuple[int, int]] = set()  # module and slot
        self.sync_tables: Callable[[], None] = lambda: None
        """Sends changes of the adapters' tables to the device; to be called before launches."""

    def set_needs_calls(self, module: object, slot: int, *, needed: bool) -> None:
        """Record whether the slot's adapter needs calls of its own from the host in this module, in every step."""
        if needed:
            self._called.add((id(module), slot))
        else:
            self._called.discard((id(module), slot))

    @property
    def slots_with_calls(self) -> frozenset[int]:
        """Slots whose adapters need calls of their own; steps with them cannot be captured."""
        return frozenset(slot for _, slot in self._called)

    @property
    def batch(self) -> StepBatch:
        assert self._batch is not None, "no forward pass is running"
        return self._batch

    @contextmanager
    def running(self, batch: StepBatch) -> Iterator[None]:
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None
