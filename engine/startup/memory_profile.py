"""How a GPU's memory is shared out: steps get what the largest was seen to take, keys and values what is left."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from loragate.engine.execution.packing import PackedRows
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.execution.step_graphs import Forward
from loragate.engine.model.base_model import BaseModel
from loragate.engine.sampling.random_sampling import draw
from loragate.engine.sequence.request import SamplingParams

log = logging.getLogger(__name__)

STEP_MARGIN = 1.25  # steps launched one by one fragment memory, and differ in what they are made of
GRAPH_SHARE = 0.03  # of all of the device's memory, for recordings of steps
_SPARE = 0.02  # of all of it, for what others on the device and libraries take later

Measure = Callable[[Callable[[], object]], int]
"""Runs a function, and says how many bytes it took at most beyond what was taken before."""


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """In bytes."""

    kv: int
    adapters: int


def share_out(total: int, free: int, step: int, adapters: int) -> DeviceBudget:
    """What is left of the `free` bytes for keys and values, of a device with `total`, when a step takes `step`."""
    left = free - int(step * STEP_MARGIN) - int((GRAPH_SHARE + _SPARE) * total) - adapters
    log.info("of %d MB free, the largest step takes %d, adapters get %d", free >> 20, step >> 20, adapters >> 20)
    return DeviceBudget(max(0, left), adapters)


@torch.inference_mode()
def step_bytes(base: BaseModel, shape: PaddedShape, forward: Forward, measure: Measure) -> int:
    """What the largest step takes: all of its rows computed, of adapters and of long sequences, and a token drawn from
    each row of logits."""
    host = torch.zeros(shape.numbers, dtype=torch.int64)
    shape.fill(host.numpy(), PackedRows.of([]))
    batch = shape.batch(host.to(base.device), adapted=True)
    params = SamplingParams(max_tokens=1, seed=0, temperature=1.0, top_p=0.9)

    def largest() -> None:
        with base.step.running(batch):
            logits = forward(batch).float()
        draw(logits, [params] * logits.shape[0], [0.5] * logits.shape[0])

    return measure(largest)


def peak_of(device: torch.device) -> Measure:
    """On a GPU, after a first time in which kernels are compiled."""

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
    base: BaseModel, shape: PaddedShape, forward: Forward, adapters: Callable[[int], int], measure: Measure
) -> DeviceBudget:
    """`adapters` says what these get of so many free bytes."""
    step = step_bytes(base, shape, forward, measure)
    torch.cuda.empty_cache()  # what is too scattered to be given back is not free
    free, total = torch.cuda.mem_get_info(base.device)
    return share_out(total, free, step, adapters(free))
