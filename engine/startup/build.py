"""Construction of the engine: a loaded and checked model, and everything that a step needs."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from loragate.engine.adapters.arena import AdapterArena
from loragate.engine.adapters.copier import AdapterCopier
from loragate.engine.adapters.host_tier import HostTier
from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.config import EngineConfig
from loragate.engine.execution.model_runner import LastTokens, ModelRunner, forward
from loragate.engine.grammar.compiler import GrammarCompiler
from loragate.engine.grammar.tokenizer import TokenSpace
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.commands import AdapterCopied
from loragate.engine.loop.engine_core import EngineCore
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.model.base_model import BaseModel, choose_device, load_plain, prepare
from loragate.engine.model.checkpoint import base_digest, locate, read_sampling_defaults, read_tokenizer, served_name
from loragate.engine.model.classifier_heads import classifier_heads
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.manifest import build_manifest, eos_token_ids, layout, targets
from loragate.engine.runtime.copy_stream import event_marker
from loragate.engine.runtime.log_format import STAGE
from loragate.engine.runtime.memory import free_device_memory, free_host_memory
from loragate.engine.runtime.thread_governor import ThreadGovernor, most_threads
from loragate.engine.scheduling.overload import QueueBounds
from loragate.engine.scheduling.scheduler import Limits, Scheduler
from loragate.engine.sequence.output import Output
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.startup import self_check
from loragate.engine.startup.kv_allocation import STORAGE, allocate_kv
from loragate.engine.startup.memory_profile import DeviceBudget, measured, peak_measure, trainer_share
from loragate.engine.startup.recorded_steps import padded_shapes, record_steps
from loragate.kernels import cpu, gpu
from loragate.kernels.cpu.openmp import end_team
from loragate.kernels.gpu.side_stream import SideStream
from loragate.kernels.segmented_lora import LoraOptions
from loragate.peft_format.plan.layout import BaseLayout
from loragate.v1 import engine_pb2 as pb

if cpu.available():
    from loragate.kernels.cpu.compile_all import compile_loops
from loragate.engine.runtime.interpreter import shorten_switch_interval

log = logging.getLogger(__name__)

_DEFAULT_MODEL_LEN = 4096  # for configs without a maximum
_ADAPTER_SHARE = 0.15  # for adapters on the device
_HOST_SHARE = 0.25  # for adapters in host memory
_USUAL_RANK = 64  # every slot on the device has room for an adapter of this rank, if memory allows
_CPU_SLOWDOWN = 2.5  # of a step that tenants share
_USUAL_EXPERT_RANK = 8  # on each of a mixture's experts


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checked base model, its manifest, and its KV cache."""

    base: BaseModel
    layout: BaseLayout
    manifest: pb.Manifest
    blocks: BlockPool
    directory: Path  # of the checkpoint
    budget: DeviceBudget | None = None  # of a GPU's memory


def load(config: EngineConfig) -> LoadedModel:
    """Load, check and measure the base model. Raise ModelRejected."""
    shorten_switch_interval()
    if (threads := config.threads or most_threads()) != torch.get_num_threads():
        torch.set_num_threads(threads)
    _sum_in_single_precision()
    try:
        with _quiet_transformers():
            return _load(config)
    finally:
        end_team()


def _sum_in_single_precision() -> None:
    """Forbid cuBLAS to add up the parts of a product in half precision, as torch allows by default."""
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = False
    products.allow_fp16_reduced_precision_reduction = False


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and announcements of deprecations out of the engine's output."""
    had_progress_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\b")
            yield
    finally:
        if had_progress_bars:
            transformers_logging.enable_progress_bar()


def _load(config: EngineConfig) -> LoadedModel:
    directory = locate(config.model, require_commit=config.require_pinned_model)
    log.info("loading %s", directory.name, extra=STAGE)
    if cpu.available() and choose_device(config).type == "cpu":
        compile_loops()
    plain = load_plain(directory, config)
    max_model_len, notes = _max_model_len(plain, config)
    log.info("checking the packed model against transformers' own", extra=STAGE)
    expected = self_check.reference(plain, self_check.check_lengths(plain.config, max_model_len))
    found, heads = targets(plain), classifier_heads(plain)
    device = choose_device(config)
    invariant = config.batch_invariant == "on" and device.type == "cuda"
    dependent = config.lora_dependent_launch and gpu.launches_dependents(device)
    beside = SideStream(device) if config.lora_side_stream and gpu.serves(device) else None
    base = prepare(plain, batch_invariant=invariant, lora=LoraOptions(config.lora_gemm_rows, dependent, beside))
    self_check.verify(base, expected)
    where = layout(base, found, config.max_lora_rank, heads)
    digest = base_digest(directory, config.cache_dir / "base-digests.json")
    budget = _budget(base, config, max_model_len)
    blocks = allocate_kv(base, config, max_model_len, digest, None if budget is None else budget.kv)
    max_model_len = min(max_model_len, blocks.total * blocks.block_size)
    manifest = build_manifest(
        base.model,
        where,
        read_tokenizer(directory),
        device=str(base.device),
        model_id=served_name(config),
        base_digest=digest,
        max_model_len=max_model_len,
        adapter_slots=config.adapter_slots,
        kv_capacity_tokens=blocks.total * blocks.block_size,
        notes=notes,
        sampling_defaults=read_sampling_defaults(directory),
    )
    for note in notes:
        log.warning("%s", note)
    return LoadedModel(base, where, manifest, blocks, directory, budget)


def build_core(
    loaded: LoadedModel,
    config: EngineConfig,
    *,
    request_read: Callable[[AdapterKey], None],
    emit: Callable[[list[Output]], None],
    on_crash: Callable[[], None],
    on_retired: Callable[[AdapterKey], None] = lambda key: None,
) -> EngineCore:
    """Build the step loop over a loaded model, without starting it.

    `on_retired` is called for each deleted adapter once it has left the device and host memory.
    """
    copier = AdapterCopier(loaded.base.device, lambda copy, result: core.post(AdapterCopied(copy, result)))
    adapters = AdapterPool(
        config.adapter_slots,
        _arena(loaded, config),
        HostTier(config.adapter_host_bytes or int(free_host_memory() * _HOST_SHARE)),
        request_read,
        copier.request,
        config.max_full_weight_bytes,
        event_marker(loaded.base.device),
    )
    scheduler = Scheduler(_step_limits(loaded, config), loaded.blocks, adapters)
    manifest, eos = loaded.manifest, eos_token_ids(loaded.base.model)
    grammars = GrammarCompiler(TokenSpace(manifest.tokenizer_json, manifest.vocab_size, eos), torch.get_num_threads())
    last = LastTokens(config.max_batch_size, loaded.base.device)
    graphs = record_steps(loaded.base, config, loaded.manifest.max_model_len, loaded.blocks, last)
    runner = ModelRunner(loaded.base, last, graphs)
    limits = ModelLimits(manifest.max_model_len, manifest.vocab_size, eos, runner.embeds)
    on_gpu = loaded.base.device.type == "cuda"
    core = EngineCore(
        runner=runner,
        scheduler=scheduler,
        blocks=loaded.blocks,
        adapters=adapters,
        grammars=grammars,
        limits=limits,
        governor=ThreadGovernor(torch.get_num_threads(), fixed=on_gpu or config.threads is not None),
        emit=emit,
        on_crash=on_crash,
        on_retired=on_retired,
        on_stopped=copier.close,
        late=on_gpu if config.async_scheduling == "auto" else config.async_scheduling == "on",
    )
    return core


def _arena(loaded: LoadedModel, config: EngineConfig) -> AdapterArena:
    """Return the device memory for adapters; on a CPU without a configured size, host copies are used in place."""
    device, budget = loaded.base.device, loaded.budget
    size = _arena_bytes(loaded.base, config, free_device_memory(device)) if budget is None else budget.adapters
    return AdapterArena(size, device, in_host=device.type == "cpu" and config.adapter_device_bytes is None)


def _arena_bytes(base: BaseModel, config: EngineConfig, free: int) -> int:
    """Return the configured size, else room for an adapter of the usual rank in every slot.

    The latter is limited to a share of free memory, and is at least enough for one adapter.
    """
    if config.adapter_device_bytes is not None:
        return config.adapter_device_bytes
    usual = base.adapter_bytes(min(_USUAL_RANK, config.max_lora_rank)) + base.expert_bytes(_USUAL_EXPERT_RANK)
    return max(2 * usual, min(config.adapter_slots * usual, int(free * _ADAPTER_SHARE)))


def _budget(base: BaseModel, config: EngineConfig, max_model_len: int) -> DeviceBudget | None:
    """Measure a GPU's memory: what is left after the largest step, over a minimal cache.

    A CPU shares the host's memory with others, and uses fixed shares of it.
    """
    if base.device.type != "cuda" or not gpu.available():
        return None
    base.reserve(config.adapter_slots, config.max_lora_rank)
    base.allocate_cache(2 * config.block_size, STORAGE[config.kv_cache_dtype])
    shape = padded_shapes(base, config, max_model_len, scratch=config.block_size)[-1]
    adapters = partial(_arena_bytes, base, config)
    try:
        last = LastTokens(config.max_batch_size, base.device)
        trainer = trainer_share(base, config.trainer_bytes)
        return measured(base, shape, partial(forward, base, last), adapters, peak_measure(base.device), trainer)
    except torch.OutOfMemoryError as error:
        tokens = config.max_batch_tokens
        raise ModelRejected(
            f"the device does not have enough memory for a step of {tokens} tokens: lower engine.max_batch_tokens"
        ) from error


def _step_limits(loaded: LoadedModel, config: EngineConfig) -> Limits:
    usual = _CPU_SLOWDOWN if loaded.base.device.type == "cpu" else None
    return Limits(
        max_tokens=config.max_batch_tokens,
        max_sequences=config.max_batch_size,
        max_model_len=loaded.manifest.max_model_len,
        step_seconds=None if config.max_step_ms is None else config.max_step_ms / 1000,
        max_slowdown=config.max_slowdown or usual,
        batch_seconds=None if config.batch_step_ms is None else config.batch_step_ms / 1000,
        queue=QueueBounds(config.max_waiting, config.max_waiting_per_tenant),
    )


def _max_model_len(model: PreTrainedModel, config: EngineConfig) -> tuple[int, list[str]]:
    """Return the maximum length within the model's limit, the configured one and that of the self-check, with notes."""
    text = model.config.get_text_config()
    longest = int(getattr(text, "max_position_embeddings", None) or _DEFAULT_MODEL_LEN)
    if config.max_model_len is not None and config.max_model_len > longest:
        raise ModelRejected(
            f"engine.max_model_len is {config.max_model_len}, but the model has only {longest} positions"
        )
    wanted = config.max_model_len or longest
    cap, note = self_check.cap_from_twin(model)
    if cap is None or wanted <= cap:
        return wanted, []
    return cap, [note]
