"""The recordings of a model's steps, made when the engine starts."""

import logging
from functools import partial

import torch

from loragate.engine.config import EngineConfig
from loragate.engine.execution.cuda_graphs import CudaGraphs
from loragate.engine.execution.model_runner import LastTokens, ModelRunner, forward
from loragate.engine.execution.padded_step import PaddedShape, sizes
from loragate.engine.execution.step_graphs import Record, StepGraphs
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.layers.attention import attention_state
from loragate.engine.layers.rotary import host_reads
from loragate.engine.model.base_model import BaseModel
from loragate.engine.startup import recording_check, self_check
from loragate.engine.startup.memory_profile import GRAPH_SHARE
from loragate.kernels import gpu
from loragate.kernels.paged_attention import tile_rows

log = logging.getLogger(__name__)


def record_steps(
    base: BaseModel, config: EngineConfig, max_model_len: int, blocks: BlockPool, last: LastTokens
) -> StepGraphs | None:
    """Capture the steps of the model on a GPU, and discard recordings that compute something else.

    The launches of a quantized model are up to the library of its linears: if they cannot be captured, they are
    launched one by one.
    """
    record = recorder(base.device)
    if record is None or not config.cuda_graphs:
        return None
    if (cause := host_reads(base.model.config)) is not None:
        log.warning("no steps are recorded, their kernels are launched one by one: %s", cause)
        return None
    base.reserve(config.adapter_slots, config.max_lora_rank)
    shapes = padded_shapes(base, config, max_model_len, blocks.places)
    graphs = StepGraphs(shapes, base.context, partial(forward, base, last), base.device)
    graphs.record(record)
    lengths = self_check.check_lengths(base.model.config, max_model_len)
    prompts = self_check.random_prompts(base.model.config, lengths)
    recording_check.discard_wrong(graphs, base, ModelRunner(base, last), blocks, prompts)
    return graphs


def recorder(device: torch.device) -> Record | None:
    """Return the function that captures launches on the device, or None."""
    if device.type != "cuda" or not gpu.available():
        return None
    return CudaGraphs(device, int(torch.cuda.mem_get_info(device)[1] * GRAPH_SHARE)).record


def padded_shapes(base: BaseModel, config: EngineConfig, max_model_len: int, scratch: int) -> list[PaddedShape]:
    """Return the shapes of steps up to the chunk budget; `scratch` is a place for the keys and values of padding
    rows."""
    caches = [attention_state(layer.module).cache for layer in base.attention_layers]
    return [
        PaddedShape(
            rows=rows,
            sequences=min(rows, config.max_batch_size),
            logits=min(rows, config.max_batch_size),
            pages=-(-max_model_len // config.block_size),
            page=config.block_size,
            tile_rows=min(tile_rows(cache, base.dtype) for cache in caches),
            dtype=base.dtype,
            scratch=scratch,
            batch_invariant=base.context.batch_invariant,
        )
        for rows in sizes(config.max_batch_tokens, config.max_batch_size)
    ]
