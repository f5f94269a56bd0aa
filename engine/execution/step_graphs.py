"""The model's launches for steps of fixed sizes, recorded once and played back: a step then costs the host one copy and
one call, not the thousands of launches of a model's layers.

There is one recording for a number of rows with adapters, and one for the base model alone; none for how many adapters
there are, nor for which. A step that fits none, or whose adapters take calls of their own, runs as it always did.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.execution.packing import PackedRows
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.layers.forward_context import CurrentStep, StepBatch
from loragate.kernels import gpu
from loragate.kernels.host_to_device import to_device

log = logging.getLogger(__name__)

Launches = Callable[[], None]
"""Takes nothing and gives nothing: it reads and writes memory that stays where it is."""

Record = Callable[[Launches], Launches]
"""From launches to what repeats them. Raises RuntimeError if it cannot."""

Forward = Callable[[StepBatch], Tensor]
"""From a batch to the logits [logit rows, vocabulary]."""


@dataclass(slots=True)
class GraphCounters:
    """Totals since the start."""

    recorded: int = 0
    failed: int = 0  # recordings that could not be made
    replayed: int = 0  # steps
    launched: int = 0  # steps that fitted no recording


class StepGraphs:
    """`shapes` by growing rows. All share the memory that steps are written to, and that logits come from."""

    def __init__(self, shapes: list[PaddedShape], step: CurrentStep, forward: Forward, device: torch.device) -> None:
        self._shapes = shapes
        self._step = step
        self._forward = forward
        self._device = device
        self._memory = torch.zeros(max(shape.numbers for shape in shapes), dtype=torch.int64, device=device)
        self._logits: Tensor | None = None  # [most logit rows, vocabulary]
        self._replays: dict[tuple[PaddedShape, bool], Launches] = {}
        self.counters = GraphCounters()

    @torch.inference_mode()
    def record(self, record: Record) -> None:
        """Record all sizes, the largest first, so that the others' intermediate results find room where its were, then
        those of steps without prefill, which launches cost most. The first failure is the last attempt: what has no
        recording is launched as ever."""
        began = time.perf_counter()
        *others, largest = self._shapes
        for shape in (largest, *sorted(others, key=lambda s: (s.rows > s.sequences, -s.rows))):
            self._send(shape, PackedRows.of([]))  # recording may compute what is there
            for adapted in (True, False):
                try:
                    self._replays[shape, adapted] = record(self._launches(shape, adapted=adapted))
                    self.counters.recorded += 1
                except RuntimeError as error:
                    self.counters.failed += 1
                    recorded, all_ = self.counters.recorded, 2 * len(self._shapes)
                    log.warning(
                        "%d of %d recordings are made, other steps launched one by one: %s", recorded, all_, error
                    )
                    return
        seconds = time.perf_counter() - began
        log.info("recorded %d sizes of steps in %.1f s", self.counters.recorded, seconds)

    def run(self, packed: PackedRows) -> Tensor | None:
        """The logits of the step's `logit_rows`, in memory that the next step uses again; None if there is no recording
        for it."""
        adapted = any(slot >= 0 for slot in packed.slots)
        shape = self._shape_for(packed)
        replay = None if shape is None else self._replays.get((shape, adapted))
        if shape is None or replay is None:
            self.counters.launched += 1
            return None
        self._send(shape, packed)
        replay()
        self.counters.replayed += 1
        assert self._logits is not None
        wanted = packed.logit_rows
        if shape.logits < shape.rows or wanted == list(range(len(wanted))):
            return self._logits[: len(wanted)]
        return self._logits.index_select(0, to_device(wanted, self._device))

    def _shape_for(self, packed: PackedRows) -> PaddedShape | None:
        if any(sequence.pooled is not None for sequence, _ in packed.entries):
            return None
        if not self._step.called_slots.isdisjoint(packed.slots):
            return None
        return next((shape for shape in self._shapes if shape.takes(packed)), None)

    def _send(self, shape: PaddedShape, packed: PackedRows) -> None:
        """One copy, which waits for the step before and which nobody waits for: the memory that it leaves is given out
        again only once it is done."""
        numbers = shape.numbers_for(max(1, len(packed.entries)))  # rows that are nobody's are the first sequence's
        make = torch.empty if gpu.serves(self._device) else torch.zeros  # see `fill`
        host = make(numbers, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        shape.fill(host.numpy(), packed)
        self._memory[:numbers].copy_(host, non_blocking=True)

    def _launches(self, shape: PaddedShape, *, adapted: bool) -> Launches:
        batch = shape.batch(self._memory, adapted=adapted)

        def launch() -> None:
            with self._step.running(batch):
                logits = self._forward(batch)
            if self._logits is None:  # before anything is recorded: `record` begins with the largest
                rows = max(each.logits for each in self._shapes)
                self._logits = logits.new_zeros(rows, logits.shape[1])
            self._logits[: logits.shape[0]].copy_(logits)

        return launch
