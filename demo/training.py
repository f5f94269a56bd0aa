"""The training loop of the base model and the adapters: plain torch, with a loss on answers only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from loragate.demo.chat_format import PAD, Sample
from loragate.demo.muon import Muon
from loragate.demo.progress import OnStep
from loragate.demo.tokenizer import encode, token_id

_IGNORED = -100  # the label that torch's loss ignores
_WEIGHT_DECAY = 0.05
_WINDOW = 512  # samples sorted by length together, so that the rows of a batch have similar lengths


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `learning_rate`, then a cosine decay to a twentieth of it."""

    steps: int
    learning_rate: float
    warmup: int

    def rate(self, step: int) -> float:
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)


def rounds(steps: int, learning_rate: float, count: int) -> list[Schedule]:
    """Return `count` rounds: the first one in full, then shorter ones at half of its rate."""
    further = Schedule(steps // 2, learning_rate / 2, warmup=steps // 20)
    return [Schedule(steps, learning_rate, warmup=steps // 10), *[further] * (count - 1)]


@dataclass(frozen=True)
class Batch:
    """`ids` [rows, length], padded on the right; `labels` likewise, -100 where the loss ignores a token."""

    ids: Tensor
    labels: Tensor


def batches(samples: Iterator[Sample], tokenizer: Tokenizer, tokens_per_batch: int, seed: int) -> Iterator[Batch]:
    """Yield endless batches of at most `tokens_per_batch` tokens including padding, or of one longer row."""
    generator = torch.Generator().manual_seed(seed)
    pad = token_id(tokenizer, PAD)
    while True:
        window = sorted((encode(tokenizer, sample) for sample in islice(samples, _WINDOW)), key=lambda row: len(row[0]))
        groups = list(_groups(window, tokens_per_batch))
        for index in torch.randperm(len(groups), generator=generator).tolist():
            yield _batch(groups[index], pad)


def fit(
    model: nn.Module,
    stream: Iterator[Batch],
    schedule: Schedule,
    on_step: OnStep,
    orthogonal: Sequence[nn.Parameter] = (),
) -> None:
    """Train the parameters of `model` that require a gradient: `orthogonal` with Muon, the others with AdamW.

    `on_step` is called with each finished step (from 1) and its loss in nats.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    muon, adamw = _optimizers(parameters, orthogonal)
    model.train()
    for step, batch in enumerate(islice(stream, schedule.steps)):
        loss = _loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        adamw.param_groups[0]["lr"] = schedule.rate(step)
        adamw.step()
        muon.step(schedule.rate(step))
        model.zero_grad()
        on_step(step + 1, loss.item())
    model.eval()


@torch.inference_mode()
def exact_share(model: nn.Module, samples: Sequence[Sample], tokenizer: Tokenizer) -> float:
    """Return the share of the samples of which the model, given what precedes, would write every learned token."""
    generator = islice(batches(iter(samples), tokenizer, tokens_per_batch=4096, seed=0), len(samples))
    exact = asked = 0
    for batch in generator:
        predicted = model(input_ids=batch.ids, use_cache=False).logits[:, :-1].argmax(-1)
        labels = batch.labels[:, 1:]
        exact += int(((predicted == labels) | (labels == _IGNORED)).all(1).sum())
        asked += len(batch.ids)
        if asked >= len(samples):
            break
    return exact / asked


def _optimizers(
    parameters: Sequence[nn.Parameter], orthogonal: Sequence[nn.Parameter]
) -> tuple[Muon, torch.optim.AdamW]:
    taken = {id(parameter) for parameter in orthogonal}
    rest = [parameter for parameter in parameters if id(parameter) not in taken]
    return (
        Muon(orthogonal, _WEIGHT_DECAY),
        torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=_WEIGHT_DECAY, foreach=True),
    )


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    # No mask is needed: padding is on the right and attention is causal.
    logits = model(input_ids=batch.ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels[:, 1:].flatten(), ignore_index=_IGNORED)


_Row = tuple[list[int], list[bool]]


def _groups(rows: list[_Row], tokens_per_batch: int) -> Iterator[list[_Row]]:
    """Yield consecutive groups of `rows`, which are sorted by length."""
    group: list[_Row] = []
    for row in rows:
        if group and len(row[0]) * (len(group) + 1) > tokens_per_batch:
            yield group
            group = []
        group.append(row)
    yield group


def _batch(rows: list[_Row], pad: int) -> Batch:
    length = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), length), pad)
    labels = torch.full((len(rows), length), _IGNORED)
    for row, (row_ids, learned) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        labels[row, : len(row_ids)] = torch.where(torch.tensor(learned), torch.tensor(row_ids), _IGNORED)
    return Batch(ids, labels)
