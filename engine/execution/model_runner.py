"""The forward pass: packs the scheduled tokens into one row, runs the model, and returns the requested logits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.execution.packing import PackedRows, ScoredRows, SegmentCache, build_batch, decode_first
from loragate.engine.execution.step_graphs import StepGraphs
from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.model.base_model import BaseModel
from loragate.engine.sequence.pooling import Pooling, diverted
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.transfers import to_device

MAX_TOKEN_LOGITS = 1 << 20
"""The most logits of one prompt whose every token is classified: they are one message to the client."""


@dataclass(frozen=True, slots=True)
class StepLogits:
    """What a step computed, on the device: logits for the next tokens of `sampled`, and for the prompts' tokens of
    `scored`, one after the other."""

    logits: Tensor  # [samples, vocabulary]
    sampled: list[Sequence]  # the sequence of each row
    scored_logits: Tensor  # [rows, vocabulary]
    scored: list[ScoredRows]


class LastTokens:
    """The tokens chosen by the last step, on the device: the next step begins with them before the host knows them.

    At most `max_sequences` tokens, at a fixed address because captured steps read them too.

    In a sequence's tokens, and so among a step's input ids, −1 − i stands for the i-th of them.
    """

    def __init__(self, max_sequences: int, device: torch.device) -> None:
        self._tokens = torch.zeros(max_sequences, dtype=torch.long, device=device)

    @torch.inference_mode()
    def store(self, tokens: Tensor) -> None:
        """Store the tokens of the last step.

        A negative entry means that there is no token. That sequence fails when the host reads it; until then its rows
        only must stay within bounds.
        """
        self._tokens[: tokens.shape[0]].copy_(tokens.clamp(min=0))

    def fill_in(self, input_ids: Tensor) -> Tensor:
        """Return input ids with these tokens filled in."""
        last = self._tokens.index_select(0, (-1 - input_ids).clamp(min=0))
        return torch.where(input_ids < 0, last, input_ids)


class ModelRunner:
    """Runs the model. With `graphs`, steps that fit a captured graph are replayed. Both read the `last` tokens."""

    def __init__(self, base: BaseModel, last: LastTokens, graphs: StepGraphs | None = None) -> None:
        self._base = base
        self.last = last
        self._segments = SegmentCache(batch_invariant=base.context.batch_invariant)
        self._head = base.model.get_output_embeddings()
        self.graphs = graphs

    @property
    def device(self) -> torch.device:
        return self._base.device

    @property
    def embeds(self) -> bool:
        """Whether embeddings can be computed: the module that makes logits of the final states is known."""
        return self._head is not None

    def head_problem(self, sequence: Sequence) -> str | None:
        """Return why a sequence with an adapter cannot have what it asks of the adapter's head, or None."""
        labels, pooling = self._base.heads.labels(sequence.slot), sequence.request.pooling
        if pooling is None:
            return (
                None if labels is None else "the adapter has a head for labels in place of tokens: it generates no text"
            )
        if not pooling.classifies:
            return None
        if labels is None:
            return "the adapter has no head for labels"
        if pooling is Pooling.CLASSIFY_TOKENS and labels * sequence.prompt_length > MAX_TOKEN_LOGITS:
            return f"{sequence.prompt_length} tokens with {labels} labels each are more than {MAX_TOKEN_LOGITS} logits"
        return None

    def check_device(self) -> None:
        """Raise torch.AcceleratorError if the device no longer responds, as after an invalid access.

        Only a new process can compute on it then (CUDA C++ Programming Guide, "Error Checking").
        """
        if self._base.device.type == "cuda":
            torch.cuda.synchronize(self._base.device)

    @torch.inference_mode()
    def execute(self, scheduled: Mapping[Sequence, int]) -> StepLogits:
        """Compute the scheduled tokens.

        The states of sequences with pooling, or their logits by the adapter's head, are added to their pooled states.
        """
        self._base.context.sync_tables()
        packed = PackedRows.from_entries(decode_first(scheduled.items()))
        played = None if self.graphs is None else self.graphs.run(packed)
        logits = self._launch(packed) if played is None else played
        if not packed.scored:
            return StepLogits(logits, packed.sampled, logits[:0], [])
        sampled, scored = packed.sampled_rows, [row for each in packed.scored for row in each.rows]
        parts = (logits.index_select(0, to_device(rows, logits.device, torch.long)) for rows in (sampled, scored))
        return StepLogits(next(parts), packed.sampled, next(parts), packed.scored)

    def _launch(self, packed: PackedRows) -> Tensor:
        """Compute the logits of the step's `logit_rows`."""
        invariant = self._base.context.batch_invariant
        batch = build_batch(packed, self._base.device, self._segments, batch_invariant=invariant)
        pooled = _pooled_rows(packed)
        with self._base.context.running(batch):
            logits = self._pool(batch, pooled) if pooled else forward(self._base, self.last, batch)
        return logits[: len(packed.logit_rows)]

    def _pool(self, batch: StepBatch, pooled: list[tuple[Sequence, int, range]]) -> Tensor:
        """Compute logits, and pool the states of the pooled rows, which never reach the head."""
        rows = [row for _, _, rows in pooled for row in rows]
        kept = torch.cat([batch.logit_rows, to_device(rows, batch.logit_rows.device)])
        with diverted(self._head, batch.logit_rows.shape[0]) as states:
            logits = forward(self._base, self.last, batch, kept)
        parts = states[0].split([len(rows) for _, _, rows in pooled])
        for (sequence, start, _), part in zip(pooled, parts, strict=True):
            assert sequence.pooled is not None
            pooling = sequence.request.pooling
            through_head = pooling is not None and pooling.classifies
            sequence.pooled.add(self._base.heads.logits(sequence.slot, part) if through_head else part, start)
        return logits


def forward(base: BaseModel, last: LastTokens, batch: StepBatch, kept: Tensor | None = None) -> Tensor:
    """Run the model over the current batch: logits [rows, vocabulary] of its `logit_rows`.

    The head gets the final states of the rows `kept` instead, if given.
    """
    logits: Tensor = base.model(
        input_ids=last.fill_in(batch.input_ids)[None],
        position_ids=batch.positions[None],
        use_cache=False,
        logits_to_keep=batch.logit_rows if kept is None else kept,
    ).logits[0]
    return logits


def _pooled_rows(packed: PackedRows) -> list[tuple[Sequence, int, range]]:
    """Return the sequences that pool, the first pooled position of each, and its rows in the step."""
    found, row = [], 0
    for sequence, tokens in packed.entries:
        if sequence.pooled is not None:
            wanted = sequence.pooled.wanted(sequence.computed, sequence.computed + tokens)
            if wanted:
                offset = row - sequence.computed
                found.append((sequence, wanted.start, range(offset + wanted.start, offset + wanted.stop)))
        row += tokens
    return found


def append_placeholders(sequences: Iterable[Sequence]) -> None:
    """Append a placeholder for the token that each sequence got, in this order, and that the host has not read."""
    for place, sequence in enumerate(sequences):
        sequence.tokens.append(-1 - place)
