"""The check at start that a captured step computes what the same step does when it is launched kernel by kernel.

A capture keeps addresses and no memory: if anything that it reads were freed, the next tensor would be there, and rows
would get logits of other rows without an error. So every recording is replayed once over memory in which all that is
free was overwritten.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import torch

from loragate.engine.execution.model_runner import ModelRunner
from loragate.engine.execution.packing import PackedRows, decode_first
from loragate.engine.execution.padded_step import PaddedShape
from loragate.engine.execution.step_graphs import StepGraphs
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.model.base_model import BaseModel
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence as Completion
from loragate.engine.sequence.sequence import SlotLease
from loragate.engine.startup.self_check import deviation, row_errors, tolerance

log = logging.getLogger(__name__)

_PIECES = ((512, 4096), (1 << 21, 4))  # bytes and number, from both of torch's pools: below 1 MB, and above
_SLOT = 0  # no adapter is in it yet, so that its rows are the base model's

Step = dict[Completion, int]
"""The tokens that each sequence computes."""


@torch.inference_mode()
def discard_wrong(
    graphs: StepGraphs, base: BaseModel, runner: ModelRunner, blocks: BlockPool, prompts: Sequence[tuple[int, ...]]
) -> None:
    """Replay every recording on these prompts, and discard those whose logits differ from the `runner`'s.

    Call before anything is served; `runner` launches its steps.
    """
    owners = list(_computed(runner, blocks, prompts))
    for shape, adapted in graphs.recordings:
        step = fill(shape, owners, adapted=adapted)
        launched = runner.execute(step)
        overwrite_free_memory(base.device)
        found = graphs.replay(shape, PackedRows.from_entries(decode_first(step.items())), adapted=adapted)
        error = deviation(base, row_errors(found[: len(launched.sampled)], launched.logits))
        if not error <= tolerance(base):
            graphs.discard(shape, adapted=adapted)
            log.error(
                "the recording of steps of %d rows %s adapters is discarded: its logits differ from those of the same "
                "launches by %.1e of their size; such steps are launched one by one",
                shape.rows,
                "with" if adapted else "without",
                error,
            )
    for owner in owners:
        blocks.release(owner)


def fill(shape: PaddedShape, owners: Sequence[Completion], *, adapted: bool) -> Step:
    """Return a step that fills the shape with single tokens and, if there is room, chunks at the ends of prompts.

    The owners' tokens are in the cache already, so that sequences of one prompt share its pages.
    """
    decodes = shape.rows if shape.rows <= shape.sequences else shape.sequences // 2
    chunks = min(shape.rows, shape.sequences) - decodes
    longest = max(len(owner.tokens) for owner in owners)
    ends = [(owner, stop) for stop in range(longest, 0, -1) for owner in owners if stop <= len(owner.tokens)]
    step = {}
    for index, (owner, stop) in enumerate(islice(cycle(ends), decodes)):
        step[_part(owner, stop - 1, stop, adapted and index % 2 == 0)] = 1
    for owner in islice(cycle(owners), chunks):
        stop = len(owner.tokens)
        start = max(0, stop - (shape.rows - decodes) // chunks)
        step[_part(owner, start, stop, adapted)] = stop - start
    return step


def overwrite_free_memory(device: torch.device) -> None:
    """Write zeros to memory that torch would give to the next tensors: as numbers of rows or slots they are valid."""
    for size, pieces in _PIECES:
        _ = [torch.zeros(size // 8, dtype=torch.int64, device=device) for _ in range(pieces)]


def _computed(runner: ModelRunner, blocks: BlockPool, prompts: Sequence[tuple[int, ...]]) -> Iterator[Completion]:
    """Yield a sequence for each prompt, as far as there is room, with all of its tokens in the cache."""
    for prompt in prompts:
        room = min(len(prompt), blocks.free * blocks.block_size)
        if room > 0:
            owner = Completion(Request(0, 0, prompt[:room], None, SamplingParams(max_tokens=1, seed=0)), 0)
            blocks.grow(owner, room)
            runner.execute({owner: room})
            yield owner


def _part(owner: Completion, start: int, stop: int, adapted: bool) -> Completion:
    """Return a sequence with the owner's first `stop` tokens, of which those before `start` are computed."""
    part = Completion(owner.request, 0)
    part.tokens, part.computed, part.places = owner.tokens[:stop], start, owner.places[:stop]
    part.lease = SlotLease(_SLOT, 0) if adapted else None
    return part
