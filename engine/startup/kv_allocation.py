"""Allocation of memory for keys and values, on the device and on the host."""

import torch

from loragate.engine.config import EngineConfig
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.kv_cache.host_tier import KVHostTier
from loragate.engine.kv_cache.prefix_cache import PrefixCache
from loragate.engine.model.base_model import BaseModel
from loragate.engine.model.errors import ModelRejected
from loragate.engine.runtime.memory import free_device_memory, free_host_memory

STORAGE = {"auto": None, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
_DEVICE_SHARE = 0.25  # of free memory, unless configured
_HOST_SHARE = 0.1  # of free memory, for cached blocks evicted from the device,
_HOST_FACTOR = 4  # but at most this many times the device's cache


def allocate_kv(
    base: BaseModel, config: EngineConfig, max_model_len: int, base_digest: str, budget: int | None = None
) -> BlockPool:
    """Give the model its KV cache, of up to `budget` bytes or a share of free memory, and return its block pool.

    Raise ModelRejected.
    """
    blocks = _device_blocks(base, config, max_model_len, budget)
    places = (blocks + 2) * config.block_size  # the first block is the null block, the last is for padding rows
    caches = base.allocate_cache(places, STORAGE[config.kv_cache_dtype])
    if not config.prefix_cache:
        return BlockPool(blocks, config.block_size)
    host = KVHostTier(caches, config.block_size, _host_bytes(base, config, blocks))
    return BlockPool(blocks, config.block_size, PrefixCache(base_digest, config.block_size, host))


def _device_blocks(base: BaseModel, config: EngineConfig, max_model_len: int, budget: int | None) -> int:
    """Return the number of blocks for a full batch of the longest requests, within the budget."""
    tokens = config.kv_cache_tokens
    if tokens is None:
        if budget is None:
            budget = int(free_device_memory(base.device) * _DEVICE_SHARE)
        affordable = budget // base.kv_bytes_per_token(STORAGE[config.kv_cache_dtype]) - 2 * config.block_size
        tokens = max(0, min(config.max_batch_size * max_model_len, affordable))
    blocks = tokens // config.block_size
    if blocks < 1:
        raise ModelRejected(
            f"a KV cache of {tokens} tokens holds no block of {config.block_size}: raise engine.kv_cache_tokens"
        )
    return blocks


def _host_bytes(base: BaseModel, config: EngineConfig, blocks: int) -> int:
    if config.kv_host_bytes is not None:
        return config.kv_host_bytes
    on_device = blocks * config.block_size * base.kv_bytes_per_token()
    return min(int(free_host_memory() * _HOST_SHARE), _HOST_FACTOR * on_device)
