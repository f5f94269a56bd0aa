"""Steps of our engine with each option that only a GPU can decide (docs/performance.md), beside the defaults.

`lora_dependent_launch` and `lora_side_stream` are about decode steps, `lora_gemm_rows` is about prompts, `fp8` about
both.
"""

import statistics
import time
from typing import Any

from benchmarks.gpu.cases import Setting
from benchmarks.gpu.models import ALL, KINDS, build
from benchmarks.gpu.serve import RANK, Figures, decode_steps, running_engine
from benchmarks.lib.partial_results import PartialResults
from loragate.engine.local import LocalEngine

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "lora_dependent_launch": {"lora_dependent_launch": True},
    "lora_side_stream": {"lora_side_stream": True},
    "lora_gemm_rows": {"lora_gemm_rows": 256},
    "fp8": {"quantization": "fp8"},
    "defaults again": {},
}
_PROMPTS = 5  # of each kind; the median counts


def measure(setting: Setting, results: PartialResults) -> None:
    """Start an engine with each option, one after the other."""
    kinds = build(setting, setting.sizes, setting.folder, ALL, RANK, min(setting.sizes.adapters, KINDS))
    names = {f"wide-{i}": kinds[i % len(kinds)] for i in range(setting.sizes.adapters)}
    setting.free()
    for option, fields in OPTIONS.items():
        if option == "lora_side_stream" and not setting.on_gpu:
            continue  # the interpreter has one stream
        results.record(option, lambda fields=fields: _measure(setting, names, fields))


def _measure(setting: Setting, names: dict[str, Any], fields: dict[str, Any]) -> Figures:
    with running_engine(setting, names, **fields) as engine:
        return {"decode_step_ms": decode_steps(engine, setting.sizes), "prompt_ms": _prompts(engine, setting)}


def _prompts(engine: LocalEngine, setting: Setting) -> Figures:
    """Return the median milliseconds to the first token of a long prompt, without an adapter and with one."""
    sizes = setting.sizes
    length = sizes.prefill_rows
    found: Figures = {"tokens": length}
    for name in (None, "wide-0"):
        seconds = []
        for number in range(_PROMPTS if setting.on_gpu else 1):
            prompt = [3 + (number * 7919 + place * 31) % (sizes.vocabulary - 3) for place in range(length)]
            began = time.perf_counter()
            engine.generate(prompt, name, max_tokens=1)
            seconds.append(time.perf_counter() - began)
        found["with an adapter" if name else "without"] = round(1000 * statistics.median(seconds), 3)
    print(found, flush=True)
    return found
