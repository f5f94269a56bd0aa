"""Captured launches of the model for steps of fixed sizes: a replayed step costs the host one copy and one call,
instead of the thousands of launches of a model's layers.

There are two graphs for each number of rows: one with adapters, and one for the base model alone; they do not depend on
the number or identity of the adapters. A step that fits no graph, whose adapters need calls of their own, or with
segments whose products are matmuls, is launched normally.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.execution.packing import PackedRows
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.layers.forward_context import ForwardContext, StepBatch
from loragate.kernels import gpu
from loragate.kernels.segments import segments_from
from loragate.kernels.transfers import to_device

log = logging.getLogger(__name__)

Launches = Callable[[], None]
"""Reads and writes memory at fixed addresses."""

Record = Callable[[Launches], Launches]
"""Captures launches, and returns a function that replays them. Raises RuntimeError if it cannot."""

Forward = Callable[[StepBatch], Tensor]
"""Computes the logits [logit rows, vocabulary] of a batch."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A captured step.

    It owns the batch that the launches read: a graph holds addresses only, and torch would give freed memory to the
    next tensor.
    """

    launches: Launches  # holds the batch
    replay: Launches


@dataclass(slots=True)
class GraphCounters:
    """Totals since the start."""

    recorded: int = 0
    failed: int = 0  # captures that failed, or computed something else
    replayed: int = 0  # steps
    launched: int = 0  # steps that fitted no graph


class StepGraphs:
    """The graphs of `shapes`, by growing rows. All share the memory that steps are written to and that logits come
    from."""

    def __init__(
        self, shapes: list[PaddedShape], context: ForwardContext, forward: Forward, device: torch.device
    ) -> None:
        self._shapes = shapes
        self._context = context
        self._forward = forward
        self._device = device
        self._memory = torch.zeros(max(shape.numbers for shape in shapes), dtype=torch.int64, device=device)
        self._logits: Tensor | None = None  # [maximum logit rows, vocabulary]
        self._recordings: dict[tuple[PaddedShape, bool], Recording] = {}
        self.counters = GraphCounters()

    @torch.inference_mode()
    def record(self, record: Record) -> None:
        """Capture all sizes.

        The largest is first, so that the intermediate results of the others fit into its memory; then come those of
        steps without prefill, for which launches are most expensive. Capturing stops at the first failure; sizes
        without a graph are launched normally.
        """
        began = time.perf_counter()
        *others, largest = self._shapes
        for shape in (largest, *sorted(others, key=lambda s: (s.rows > s.sequences, -s.rows))):
            self._send(shape, PackedRows.from_entries([]))  # capturing may compute the contents of the memory
            for adapted in (True, False):
                launches = self._launches(shape, adapted=adapted)
                try:
                    self._recordings[shape, adapted] = Recording(launches, record(launches))
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
        """Return the logits of the step's `logit_rows`, or None if there is no graph for it.

        They are in memory that the next step reuses.
        """
        adapted = any(slot >= 0 for slot in packed.slots)
        shape = self._shape_for(packed)
        if shape is None or (shape, adapted) not in self._recordings:
            self.counters.launched += 1
            return None
        self.counters.replayed += 1
        return self.replay(shape, packed, adapted=adapted)

    @property
    def recordings(self) -> tuple[tuple[PaddedShape, bool], ...]:
        """The captured shapes, and whether each was captured with adapters."""
        return tuple(self._recordings)

    def discard(self, shape: PaddedShape, *, adapted: bool) -> None:
        """Launch steps of this shape kernel by kernel from now on."""
        del self._recordings[shape, adapted]
        self.counters.recorded -= 1
        self.counters.failed += 1

    def replay(self, shape: PaddedShape, packed: PackedRows, *, adapted: bool) -> Tensor:
        """Compute a step that the shape takes, and return the logits of its `logit_rows`; see `run`."""
        self._send(shape, packed)
        self._recordings[shape, adapted].replay()
        assert self._logits is not None
        wanted = packed.logit_rows
        if shape.logits < shape.rows or wanted == list(range(len(wanted))):
            return self._logits[: len(wanted)]
        return self._logits.index_select(0, to_device(wanted, self._device))

    def _shape_for(self, packed: PackedRows) -> PaddedShape | None:
        if packed.scored or any(sequence.pooled is not None for sequence, _ in packed.entries):
            return None
        if not self._context.slots_with_calls.isdisjoint(packed.slots):
            return None
        least = self._context.lora.gemm_rows
        if least and any(segment.stop - segment.start >= least for segment in segments_from(packed.slots)):
            return None
        return next((shape for shape in self._shapes if shape.takes(packed)), None)

    def _send(self, shape: PaddedShape, packed: PackedRows) -> None:
        """Send a step in one asynchronous copy, ordered after the previous step.

        The host memory is reused only after the copy is complete.
        """
        numbers = shape.numbers_for(max(1, len(packed.entries)))  # padding rows belong to the first sequence
        make = torch.empty if gpu.serves(self._device) else torch.zeros  # see `fill`
        host = make(numbers, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        shape.fill(host.numpy(), packed)
        self._memory[:numbers].copy_(host, non_blocking=True)

    def _launches(self, shape: PaddedShape, *, adapted: bool) -> Launches:
        batch = shape.batch(self._memory, adapted=adapted)

        def launch() -> None:
            with self._context.running(batch):
                logits = self._forward(batch)
            if self._logits is None:  # before any capture: `record` begins with the largest
                rows = max(each.logits for each in self._shapes)
                self._logits = logits.new_zeros(rows, logits.shape[1])
            self._logits[: logits.shape[0]].copy_(logits)

        return launch
