"""Division of a GPU's memory: steps get what the largest one was measured to take, keys and values what is left."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from loragate.engine.execution.packing import PackedRows
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.execution.step_graphs import Forward
from loragate.engine.model.base_model import BaseModel
from loragate.engine.sampling.prompt_scores import score
from loragate.engine.sampling.random_sampling import draw
from loragate.engine.sampling.sampler import USUAL_LOGPROBS
from loragate.engine.scheduling.step_budget import MAX_SCORED_ROWS
from loragate.engine.sequence.request import SamplingParams

log = logging.getLogger(__name__)

STEP_MARGIN = 1.25  # steps that are not captured fragment memory, and differ in their content
GRAPH_SHARE = 0.03  # of the device's total memory, for captured graphs
_SPARE = 0.02  # of the total, for later use by libraries and other processes on the device

Measure = Callable[[Callable[[], object]], int]
"""Runs a function, and returns the peak of the bytes that it allocated."""


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """The bytes for keys and values and for adapters."""

    kv: int
    adapters: int


def divide_memory(total: int, free: int, step: int, adapters: int, trainer: int = 0) -> DeviceBudget:
    """Divide `free` bytes of a device with `total` bytes when a step takes `step`, adapters get `adapters`, and
    `trainer` are left free."""
    left = free - int(step * STEP_MARGIN) - int((GRAPH_SHARE + _SPARE) * total) - adapters - trainer
    log.info("of %d MB free, the largest step takes %d, adapters get %d", free >> 20, step >> 20, adapters >> 20)
    if trainer:
        log.info("%d MB are left to a trainer", trainer >> 20)
    return DeviceBudget(max(0, left), adapters)


def trainer_share(base: BaseModel, beside: int) -> int:
    """Return the bytes of a trainer that takes `beside` a copy of the base model, which it does not quantize; 0 without
    a trainer."""
    if not beside:
        return 0
    return beside + sum(parameter.numel() for parameter in base.model.parameters()) * base.dtype.itemsize


@torch.inference_mode()
def step_bytes(base: BaseModel, shape: PaddedShape, forward: Forward, measure: Measure) -> int:
    """Measure the largest step: all rows computed, with adapters and long sequences, as many prompt tokens scored as a
    step may score, and a token sampled for each row."""
    host = torch.zeros(shape.numbers, dtype=torch.int64)
    shape.fill(host.numpy(), PackedRows.from_entries([]))
    batch = shape.batch(host.to(base.device), adapted=True)

    def largest() -> None:
        with base.context.running(batch):
            logits = forward(batch).float()
        params = SamplingParams(max_tokens=1, seed=0, temperature=1.0, top_k=logits.shape[1], top_p=0.9)  # sorts all
        scored = min(shape.rows, MAX_SCORED_ROWS)
        score(logits[:1].repeat(scored, 1), [0] * scored, USUAL_LOGPROBS)
        draw(logits, [params] * logits.shape[0], [0.5] * logits.shape[0])

    return measure(largest)


def peak_measure(device: torch.device) -> Measure:
    """Return a measure of a GPU's peak memory, taken after a first run in which kernels are compiled."""

    def measure(function: Callable[[], object]) -> int:
        function()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before

    return measure


def measured(
    base: BaseModel,
    shape: PaddedShape,
    forward: Forward,
    adapters: Callable[[int], int],
    measure: Measure,
    trainer: int = 0,
) -> DeviceBudget:
    """Measure the largest step and divide the memory; `adapters` returns their share of the free bytes, of which
    `trainer` are left free."""
    step = step_bytes(base, shape, forward, measure)
    torch.cuda.empty_cache()  # fragmented memory that torch cannot return is not free
    free, total = torch.cuda.mem_get_info(base.device)
    return divide_memory(total, free, step, adapters(max(0, free - trainer)), trainer)
