"""One step of the engine: a ragged batch packed into one row of tokens, and where its modules find it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from loragate.kernels.attention_rows import DecodeRows, PaddedRows, PrefillRows
from loragate.kernels.segments import Segments


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one forward pass computes. Decode rows come first, then the chunks of prefill; each part is sorted by
    adapter slot, so that a slot's rows form at most two segments, but for adapters that are in effect from some
    token on only."""

    input_ids: Tensor  # [rows], of which LastTokens know some
    positions: Tensor  # [rows]
    write_places: Tensor  # [rows], where the new keys and values go in the cache
    decode: DecodeRows | None
    prefills: tuple[PrefillRows, ...]
    segments: Segments
    logit_rows: Tensor  # [samples], rows whose next token is wanted, ascending
    logit_segments: Segments  # the same segments over those rows
    padded: PaddedRows | None = None  # in place of `decode` and `prefills`: a batch of fixed size

    @property
    def rows(self) -> int:
        return self.input_ids.shape[0]

    def segments_for(self, rows: int) -> Segments:
        """Segments over the rows that a module was handed: all of them, or those that the head computes."""
        if rows == self.rows:
            return self.segments
        assert rows == self.logit_rows.shape[0], "a module was handed rows of its own choosing"
        return self.logit_segments


class CurrentStep:
    """The batch that the model computes now, for attention and LoRA modules deep inside of it."""

    def __init__(self) -> None:
        self._batch: StepBatch | None = None
        self._called: set[tuple[int, int]] = set()  # module and slot
        self.settle: Callable[[], None] = lambda: None
        """What adapters that came or left changed in tables goes to the device; to be called before launches."""

    def calls(self, module: object, slot: int, *, needed: bool) -> None:
        """Whether what is in the slot takes calls of its own in this module, from the host, in each step."""
        if needed:
            self._called.add((id(module), slot))
        else:
            self._called.discard((id(module), slot))

    @property
    def called_slots(self) -> frozenset[int]:
        """Slots whose adapters take calls of their own somewhere: no step with them can be told beforehand."""
        return frozenset(slot for _, slot in self._called)

    @property
    def batch(self) -> StepBatch:
        assert self._batch is not None, "no step is running"
        return self._batch

    @contextmanager
    def running(self, batch: StepBatch) -> Iterator[None]:
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None
