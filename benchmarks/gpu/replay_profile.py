"""The kernels of one full decode step, a replayed one on a GPU, with a different adapter for each row."""

from typing import Any

import torch
from torch.profiler import ProfilerActivity

from benchmarks.gpu.cases import Setting
from benchmarks.gpu.models import ALL, KINDS, build
from benchmarks.lib.partial_results import PartialResults
from loragate.engine.execution.packing import PackedRows, decode_first
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence, SlotLease

_RANK = 16
_LONGEST_NAME = 100

Figures = dict[str, Any]


def profile(setting: Setting, results: PartialResults) -> None:
    sizes, folder = setting.sizes, setting.folder
    folders = build(setting, sizes, folder, ALL, _RANK, min(sizes.adapters, KINDS))
    names = {f"wide-{i}": folders[i % len(folders)] for i in range(sizes.adapters)}
    engine = LocalEngine(
        folder / "base", folder / "cache", names, adapter_slots=sizes.adapters, **setting.memory_settings
    )
    try:
        for name in names:
            engine.generate([1, 2, 3], name, max_tokens=1)  # loads it
        results.record("kernels_of_a_step", lambda: _kernels(setting, engine))
    finally:
        engine.close()


@torch.inference_mode()
def _kernels(setting: Setting, engine: LocalEngine) -> list[Figures]:
    """Return name, launches and microseconds of each kernel of a step, the longest first.

    The engine is idle, so that this thread may compute.
    """
    runner = engine.core._runner
    step = _step(setting, engine)
    graphs = runner.graphs
    packed = PackedRows.from_entries(decode_first(step.items()))
    for _ in range(2):  # the first is a warm-up, in which a graph is uploaded
        activities = [ProfilerActivity.CUDA if setting.on_gpu else ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profiled:
            if graphs is None or graphs.run(packed) is None:
                runner.execute(step)
            if setting.on_gpu:
                torch.cuda.synchronize()
    key = "self_device_time_total" if setting.on_gpu else "self_cpu_time_total"
    events = sorted(profiled.key_averages(), key=lambda event: -getattr(event, key))
    table = [
        {"kernel": event.key[:_LONGEST_NAME], "launches": event.count, "us": round(getattr(event, key), 1)}
        for event in events
        if getattr(event, key)
    ]
    for row in table:
        print(f"{row['us']:10.1f} us {row['launches']:5} x {row['kernel']}", flush=True)
    return table


def _step(setting: Setting, engine: LocalEngine) -> dict[Sequence, int]:
    """Return a step of one new token for each adapter's sequence, all after one prompt that shares its pages."""
    blocks, sizes = engine.loaded.blocks, setting.sizes
    prompt = tuple(i % (sizes.vocabulary - 3) + 3 for i in range(sizes.prompt))
    owner = Sequence(Request(0, 0, prompt, None, SamplingParams(max_tokens=1, seed=0)), 0)
    blocks.grow(owner, len(prompt))
    engine.core._runner.execute({owner: len(prompt)})
    step = {}
    for slot in range(sizes.adapters):
        part = Sequence(owner.request, slot)
        part.tokens, part.computed, part.places = owner.tokens, len(prompt) - 1, owner.places
        part.lease = SlotLease(slot, 0)
        step[part] = 1
    return step
