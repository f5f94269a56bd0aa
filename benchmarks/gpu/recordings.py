"""Comparison of the tokens of recorded steps with those of steps launched kernel by kernel, in float32.

Without a GPU, "recorded" steps are those of fixed sizes, launched each time.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.cases import Setting
from benchmarks.gpu.models import ALL, build
from benchmarks.lib.partial_results import PartialResults
from loragate.engine.local import LocalEngine
from loragate.engine.startup import recorded_steps

_RANK = 16
_PLACES = 2048  # of the cache

Tokens = list[list[int]]


def compare(setting: Setting, results: PartialResults) -> None:
    recorder = recorded_steps.recorder
    if not setting.on_gpu:
        recorded_steps.recorder = lambda device: lambda launches: launches
    try:
        _compare(setting, results)
    finally:
        recorded_steps.recorder = recorder


def _compare(setting: Setting, results: PartialResults) -> None:
    sizes = setting.sizes
    adapters = build(setting, sizes, setting.folder, ALL, _RANK, min(sizes.adapters, 4))
    launched, _ = _served(setting, adapters, cuda_graphs=False, async_scheduling="off")
    for name, late in (("tokens_read_at_once", "off"), ("tokens_read_late", "on")):
        found, replayed = _served(setting, adapters, cuda_graphs=True, async_scheduling=late)
        equal = sum(a == b for a, b in zip(found, launched, strict=True))
        figures = {"requests": len(launched), "equal": equal, "replayed_steps": replayed}
        print(name, figures, flush=True)
        results.record(name, lambda figures=figures: _checked(figures))


def _checked(figures: dict[str, int]) -> dict[str, int]:
    assert figures["replayed_steps"], "no step was replayed"
    assert figures["equal"] == figures["requests"], f"recorded steps compute other tokens: {figures}"
    return figures


def _served(
    setting: Setting, adapters: Sequence[Path], *, cuda_graphs: bool, async_scheduling: str
) -> tuple[Tokens, int]:
    """Return the greedy tokens of a mixed batch, and the number of replayed steps."""
    names = {f"a{i}": path for i, path in enumerate(adapters)}
    folder, sizes = setting.folder, setting.sizes
    engine = LocalEngine(
        folder / "base",
        folder / "cache",
        names,
        adapter_slots=len(adapters),
        dtype="float32",
        max_batch_size=4 * len(adapters),
        max_batch_tokens=8 * len(adapters),
        cuda_graphs=cuda_graphs,
        async_scheduling=async_scheduling,
        kv_host_bytes=0,
        kv_cache_tokens=_PLACES,
        max_model_len=_PLACES // 8,
    )
    try:
        prompts = [[(7 * i + j) % (sizes.vocabulary - 3) + 3 for j in range(1 + 3 * i)] for i in range(2 * len(names))]
        asked = [(prompt, [None, *names][i % (len(names) + 1)]) for i, prompt in enumerate(prompts)]
        requests = [engine.submit(prompt, name, max_tokens=sizes.new_tokens) for prompt, name in asked]
        for request in requests:
            error = engine.result(request)[-1].error
            assert error is None, error
        return [engine.tokens(request) for request in requests], engine.core.graphs.replayed
    finally:
        engine.close()
        del engine
        setting.free()
