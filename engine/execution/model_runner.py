"""Packs the scheduled tokens into one row, runs the model over it, and gives back the logits that were asked for."""

from collections.abc import Mapping

import torch
from torch import Tensor

from loragate.engine.execution.last_tokens import LastTokens
from loragate.engine.execution.packing import PackedRows, SegmentMemory, batch_of, decode_first
from loragate.engine.execution.step_graphs import StepGraphs
from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.model.base_model import BaseModel
from loragate.engine.sequence.pooling import diverted
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.host_to_device import to_device


class ModelRunner:
    """With `graphs`, steps that fit one of their recordings are played back. Both read the `last` tokens."""

    def __init__(self, base: BaseModel, last: LastTokens, graphs: StepGraphs | None = None) -> None:
        self._base = base
        self.last = last
        self._segments = SegmentMemory()
        self._head = base.model.get_output_embeddings()
        self.graphs = graphs

    @property
    def device(self) -> torch.device:
        return self._base.device

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
        self._base.step.settle()
        packed = PackedRows.of(decode_first(scheduled.items()))
        played = None if self.graphs is None else self.graphs.run(packed)
        return self._launch(packed) if played is None else played, packed.sampled

    def _launch(self, packed: PackedRows) -> Tensor:
        batch = batch_of(packed, self._base.device, self._segments)
        pooled = _pooled_rows(packed)
        with self._base.step.running(batch):
            logits = self._pool(batch, pooled) if pooled else forward(self._base, self.last, batch)
        return logits[: len(packed.sampled)]

    def _pool(self, batch: StepBatch, pooled: list[tuple[Sequence, int, range]]) -> Tensor:
        """The states of pooled rows come with those of the logits' rows, and never reach the head."""
        rows = [row for _, _, rows in pooled for row in rows]
        kept = torch.cat([batch.logit_rows, to_device(rows, batch.logit_rows.device)])
        with diverted(self._head, batch.logit_rows.shape[0]) as states:
            logits = forward(self._base, self.last, batch, kept)
        parts = states[0].split([len(rows) for _, _, rows in pooled])
        for (sequence, start, _), part in zip(pooled, parts, strict=True):
            assert sequence.pooled is not None
            sequence.pooled.add(part, start)
        return logits


def forward(base: BaseModel, last: LastTokens, batch: StepBatch, kept: Tensor | None = None) -> Tensor:
    """The model over the batch that runs now: logits [rows, vocabulary] of its `logit_rows`, or of the rows `kept`,
    whose final states go to the head."""
    logits: Tensor = base.model(
        input_ids=last.filled(batch.input_ids)[None],
        position_ids=batch.positions[None],
        use_cache=False,
        logits_to_keep=batch.logit_rows if kept is None else kept,
    ).logits[0]
    return logits


def _pooled_rows(packed: PackedRows) -> list[tuple[Sequence, int, range]]:
    """Which sequences pool, from which of their positions on, and the step's rows for that."""
    found, row = [], 0
    for sequence, tokens in packed.entries:
        if sequence.pooled is not None:
            wanted = sequence.pooled.wanted(sequence.computed, sequence.computed + tokens)
            if wanted:
                offset = row - sequence.computed
                found.append((sequence, wanted.start, range(offset + wanted.start, offset + wanted.stop)))
        row += tokens
    return found
