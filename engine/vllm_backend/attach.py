"""vLLM started from our settings, and the attach test by which it earns its place.

A build that answers one row wrongly is refused, and no setting overrides that: the row could be another tenant's.
"""

import asyncio
import hashlib
import json
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch

from loragate.engine.config import EngineConfig, EngineOptions
from loragate.engine.model.base_model import choose_dtype
from loragate.engine.model.checkpoint import locate
from loragate.engine.model.errors import ModelRejected
from loragate.engine.runtime.log_format import STAGE
from loragate.engine.runtime.memory import free_host_memory
from loragate.engine.vllm_backend import tiny_check
from loragate.engine.vllm_backend.async_llm import TESTED_VERSION, AsyncLlm, vllm_version
from loragate.engine.vllm_backend.live_check import LiveCheck
from loragate.engine.vllm_backend.llm import LlmDied
from loragate.engine.vllm_backend.served_model import ServedModel, describe, restricted, skeleton, whole_layout
from loragate.peft_format.kinds import AdapterKind

log = logging.getLogger(__name__)

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has room for
_BLOCK = 32  # tokens of a page, if their number is set
_HOST_SHARE = 0.5  # of a CPU's free memory: others share it
_MEANINGLESS = (
    "quantization",
    "adapter_device_bytes",
    "adapter_host_bytes",
    "batch_invariant",
    "lora_dependent_launch",
    "lora_gemm_rows",
    "lora_side_stream",
    "async_scheduling",
    "max_step_ms",
    "max_slowdown",
    "kv_host_bytes",
    "trainer_bytes",
    "max_full_weight_bytes",
)
_OF_THE_MODEL = ("model", "max_model_len", "skip_tokenizer_init", "gpu_memory_utilization")  # the tiny one has its own
_TINY_SECONDS = 900
_MOST_SHOWN = 8


def check_options(config: EngineConfig) -> None:
    """Raise ValueError for a setting that vLLM has no counterpart for, by its name."""
    for option in fields(EngineOptions):
        changed = option.default is not MISSING and getattr(config, option.name) != option.default
        if option.name in _MEANINGLESS and changed:
            raise ValueError(f"engine.{option.name} is for loragate's own engine: the backend vllm has no counterpart")
    if config.kv_cache_dtype == "int8":
        raise ValueError("engine.kv_cache_dtype must be auto or fp8 with the backend vllm, got 'int8'")
    if config.max_lora_rank > _RANKS[-1]:
        raise ValueError(f"engine.max_lora_rank must be at most {_RANKS[-1]} with the backend vllm")


def engine_arguments(config: EngineConfig, directory: Path) -> dict[str, Any]:
    """Return the arguments of vLLM's AsyncEngineArgs."""
    slots = config.adapter_slots + 1  # the last one stays empty, see AdapterSlots
    arguments: dict[str, Any] = {
        "model": str(directory),
        "dtype": str(choose_dtype(directory, config)).removeprefix("torch."),
        "trust_remote_code": False,
        "generation_config": "vllm",
        "max_model_len": config.max_model_len,
        "max_num_batched_tokens": max(config.max_batch_tokens, config.max_batch_size),
        "max_num_seqs": config.max_batch_size,
        "enable_prefix_caching": config.prefix_cache,
        "enable_chunked_prefill": True,
        "enforce_eager": not config.cuda_graphs,
        "enable_lora": True,
        "max_loras": slots,
        "max_cpu_loras": slots,
        "max_lora_rank": next(rank for rank in _RANKS if rank >= config.max_lora_rank),
        "tensor_parallel_size": config.tensor_parallel_size,
        "structured_outputs_config": {"backend": "guidance"},
        "max_logprobs": -1,
        "skip_tokenizer_init": not (directory / "tokenizer.json").is_file(),
        "kv_cache_dtype": config.kv_cache_dtype,
        "disable_log_stats": True,
    }
    if not torch.cuda.is_available():
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        arguments["gpu_memory_utilization"] = _HOST_SHARE * free_host_memory() / total
    if config.kv_cache_tokens is not None:
        arguments |= {"block_size": _BLOCK, "num_gpu_blocks_override": -(-config.kv_cache_tokens // _BLOCK)}
    return arguments


async def attach(config: EngineConfig, numbers: Iterator[int]) -> tuple[AsyncLlm, ServedModel]:
    """Start vLLM, and test it. Raise ModelRejected if it may not serve."""
    version = vllm_version()
    if not version.endswith(f" {TESTED_VERSION}"):
        log.warning("%s is not the version that loragate was tested with, %s", version, TESTED_VERSION)
    directory = locate(config.model, require_commit=config.require_pinned_model)
    model = skeleton(directory)
    arguments = engine_arguments(config, directory)
    tiny = await tiny_report(config, arguments, version)
    refuse_wrong(version, tiny["wrong"])
    for words in tiny["excluded"]:
        log.warning("%s does not serve: %s", version, words)
    kinds = frozenset(AdapterKind(kind) for kind in tiny["kinds"])
    layout = whole_layout(model, config.max_lora_rank, kinds)
    log.info("starting %s", version, extra=STAGE)
    llm = AsyncLlm(arguments)
    served = describe(directory, model, layout, config, llm)
    scratch = config.cache_dir / "vllm-attach"
    vocabulary = served.limits.vocab_size
    try:
        live = await LiveCheck(llm, served.layout, config.adapter_slots, numbers, scratch, vocabulary).run()
        refuse_wrong(version, live.wrong)
    except LlmDied as error:
        raise ModelRejected(
            f"{version} cannot compute this model here: it died in the attach test ({error})"
        ) from error
    except ModelRejected:
        await llm.stop()
        raise
    for name in sorted(live.unchanged):
        log.warning("%s does not serve adapters on %s: one changed nothing there, or was rejected", version, name)
    return llm, describe(directory, model, restricted(layout, live.targets - set(tiny["failed"])), config, llm)


def refuse_wrong(version: str, wrong: list[str]) -> None:
    """Raise ModelRejected if a row was wrong."""
    if not wrong:
        return
    shown = "".join(f"\n  {words}" for words in wrong[:_MOST_SHOWN])
    more = f"\n  and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
    raise ModelRejected(
        f"{version} answers rows wrongly on this machine, so it is not served: a row could be another tenant's. Take "
        f"another version of vLLM, or leave out --backend. What was wrong:{shown}{more}"
    )


async def tiny_report(config: EngineConfig, arguments: Mapping[str, Any], version: str) -> dict[str, list[str]]:
    """Return the report of the test on the tiny model, from the cache if this build was tested here."""
    cache = config.cache_dir / "vllm-attach.json"
    digest = _build_digest(arguments, version)
    known = _read(cache)
    if digest not in known:
        log.info("testing %s on a tiny model against our own engine; the result is kept", version, extra=STAGE)
        known = {digest: await _tested(arguments)}
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known))
    report: dict[str, list[str]] = known[digest]
    return report


async def _tested(arguments: Mapping[str, Any]) -> Any:
    """Run the test in its own process: two engines of vLLM's in one process would share its global state."""
    with tempfile.TemporaryDirectory() as folder:
        given, report = Path(folder) / "arguments.json", Path(folder) / "report.json"
        given.write_text(json.dumps(dict(arguments)))
        command = (sys.executable, *tiny_check.COMMAND, str(given), str(report))
        process = await asyncio.create_subprocess_exec(*command)
        try:
            async with asyncio.timeout(_TINY_SECONDS):
                status = await process.wait()
        except TimeoutError:
            raise ModelRejected(f"the test of vLLM on a tiny model took more than {_TINY_SECONDS} s") from None
        finally:
            if process.returncode is None:
                process.kill()
        if status or not report.is_file():
            raise ModelRejected(f"the test of vLLM on a tiny model failed with status {status}; see its output above")
        return json.loads(report.read_text())


def _build_digest(arguments: Mapping[str, Any], version: str) -> str:
    """Return a digest of what the test on the tiny model depends on."""
    ours = {name: value for name, value in arguments.items() if name not in _OF_THE_MODEL}
    processor = torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name()
    parts = (version, torch.__version__, _own_source(), processor, json.dumps(ours, sort_keys=True))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _own_source() -> str:
    """Return a digest of the test and of what it tests here."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.machine())


def _read(cache: Path) -> dict[str, Any]:
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
