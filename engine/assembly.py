"""From settings to a loaded, checked model with everything around it that a step needs."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from loragate.engine import self_check
from loragate.engine.adapter_arena import AdapterArena
from loragate.engine.adapter_copier import AdapterCopier
from loragate.engine.adapter_pool import AdapterPool
from loragate.engine.base_model import BaseModel, ModelRefused, load_plain, prepare
from loragate.engine.block_pool import BlockPool
from loragate.engine.checkpoint import base_digest, locate, read_sampling_defaults, read_tokenizer
from loragate.engine.config import EngineConfig
from loragate.engine.core import AdapterCopied, EngineCore, ModelLimits
from loragate.engine.host_tier import HostTier
from loragate.engine.manifest import build_manifest, eos_token_ids, layout, targets
from loragate.engine.model_runner import ModelRunner
from loragate.engine.scheduler import Limits, Scheduler
from loragate.engine.sequence import AdapterKey, Output
from loragate.peft_format.layout import BaseLayout
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_DEFAULT_MODEL_LEN = 4096  # for configs that name no maximum
_CACHE_SHARE = 0.25  # of free memory, for KV, unless told otherwise
_ADAPTER_SHARE = 0.15  # for adapters on the device
_HOST_SHARE = 0.25  # for adapters in host memory
_USUAL_RANK = 64  # adapters on the device are given room for this rank in every slot, if memory allows


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checked base model, its manifest, and how much KV cache it gets."""

    base: BaseModel
    layout: BaseLayout
    manifest: pb.Manifest
    blocks: BlockPool


def load(config: EngineConfig) -> LoadedModel:
    """Load, check and measure the base model. Raises ModelRefused."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    directory = locate(config.model)
    log.info("loading %s", directory.name)
    plain = load_plain(directory, config)
    max_model_len, notes = _max_model_len(plain, config)
    log.info("checking the packed model against transformers' own")
    expected = self_check.reference(plain, self_check.check_lengths(plain.config, max_model_len))
    found = targets(plain)
    base = prepare(plain)
    self_check.verify(base, expected)
    where = layout(base, found, config.max_lora_rank)
    blocks = _size_cache(base, config, max_model_len)
    max_model_len = min(max_model_len, blocks.total * blocks.block_size)
    base.allocate_cache(blocks.places)
    manifest = build_manifest(
        base,
        where,
        read_tokenizer(directory),
        model_id=config.model_id or _name(config.model, directory),
        base_digest=base_digest(directory, config.cache_dir / "base-digests.json"),
        max_model_len=max_model_len,
        adapter_slots=config.adapter_slots,
        kv_capacity_tokens=blocks.total * blocks.block_size,
        notes=notes,
        sampling_defaults=read_sampling_defaults(directory),
    )
    for note in notes:
        log.warning("%s", note)
    return LoadedModel(base, where, manifest, blocks)


def build_core(
    loaded: LoadedModel,
    config: EngineConfig,
    *,
    request_read: Callable[[AdapterKey], None],
    emit: Callable[[list[Output]], None],
    died: Callable[[], None],
) -> EngineCore:
    """The step loop over a loaded model; not started yet."""
    copier = AdapterCopier(loaded.base.device, lambda copy, result: core.post(AdapterCopied(copy, result)))
    adapters = AdapterPool(
        config.adapter_slots,
        AdapterArena(_arena_bytes(loaded.base, config), loaded.base.device),
        HostTier(config.adapter_host_bytes or int(_free_memory() * _HOST_SHARE)),
        request_read,
        copier.request,
    )
    scheduler = Scheduler(Limits(config.max_batch_tokens, config.max_batch_size), loaded.blocks, adapters)
    limits = ModelLimits(loaded.manifest.max_model_len, loaded.manifest.vocab_size, eos_token_ids(loaded.base.model))
    core = EngineCore(
        ModelRunner(loaded.base), scheduler, loaded.blocks, adapters, limits, emit=emit, died=died, stopped=copier.close
    )
    return core


def _arena_bytes(base: BaseModel, config: EngineConfig) -> int:
    """Room for an adapter of the usual rank in every slot, within a share of free memory; for one at least."""
    if config.adapter_device_bytes is not None:
        return config.adapter_device_bytes
    usual = base.adapter_bytes(min(_USUAL_RANK, config.max_lora_rank))
    free = _free_memory() if base.device.type == "cpu" else torch.cuda.mem_get_info(base.device)[0]
    return max(2 * usual, min(config.adapter_slots * usual, int(free * _ADAPTER_SHARE)))


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _name(model: str, directory: Path) -> str:
    """A folder's own name; a hub id as it is, since the folder it was downloaded to is named after a commit."""
    return directory.resolve().name if Path(model).expanduser().is_dir() else model


def _max_model_len(model: PreTrainedModel, config: EngineConfig) -> tuple[int, list[str]]:
    """What the config allows, what was asked for, and what the self-check's twin can vouch for."""
    text = model.config.get_text_config()
    longest = int(getattr(text, "max_position_embeddings", None) or _DEFAULT_MODEL_LEN)
    if config.max_model_len is not None and config.max_model_len > longest:
        raise ModelRefused(f"engine.max_model_len is {config.max_model_len}, but the model ends at {longest} positions")
    wanted = config.max_model_len or longest
    cap, note = self_check.cap_from_twin(model.config, model.dtype)
    if cap is None or wanted <= cap:
        return wanted, []
    return cap, [note]


def _size_cache(base: BaseModel, config: EngineConfig, max_model_len: int) -> BlockPool:
    """As many tokens as a full batch of the longest requests could use, within a share of free memory."""
    tokens = config.kv_cache_tokens
    if tokens is None:
        affordable = int(_free_memory() * _CACHE_SHARE) // base.kv_bytes_per_token
        tokens = min(config.max_batch_size * max_model_len, affordable)
    blocks = tokens // config.block_size
    if blocks < 1:
        raise ModelRefused(
            f"a KV cache of {tokens} tokens holds no block of {config.block_size}: raise engine.kv_cache_tokens"
        )
    return BlockPool(blocks, config.block_size)
