"""Our engine on a model of random weights: its decode steps, its throughput with few and many adapters, and PEFT's."""

import random
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.cases import Setting, Sizes
from benchmarks.gpu.models import ALL, ATTENTION, KINDS, build, peft
from benchmarks.gpu.timing import bandwidth
from benchmarks.lib.partial_results import Findings
from loragate.engine.local import LocalEngine

RANK = 16  # of the adapters on all linears

Figures = dict[str, Any]


def serve(setting: Setting, found: Findings) -> None:
    folder, sizes = setting.folder, setting.sizes
    wide = build(setting, sizes, folder, ALL, RANK, min(sizes.adapters, KINDS))
    narrow = build(setting, sizes, folder, ATTENTION, 8, min(sizes.registered, KINDS))
    names = {f"wide-{i}": wide[i % len(wide)] for i in range(sizes.adapters)}
    names |= {f"narrow-{i}": narrow[i % len(narrow)] for i in range(sizes.registered)}
    speed = bandwidth(setting)  # while there is room for it
    setting.free()
    engine = LocalEngine(
        folder / "base", folder / "cache", names, adapter_slots=sizes.adapters, async_scheduling="on", **setting.room
    )
    try:
        _serve(setting, engine, speed, found)
    finally:
        engine.close()
        del engine
        setting.free()
    found.keep("peft_mixed_batch_tokens_per_second", lambda: _peft(setting, folder / "base", wide))


def _serve(setting: Setting, engine: LocalEngine, speed: float, found: Findings) -> None:
    sizes = setting.sizes
    for i in range(sizes.adapters):
        engine.generate([1, 2, 3], f"wide-{i}", max_tokens=1)  # reads it: steps are to be full ones
    steps = found.keep("decode_step_ms", lambda: _steps(engine, sizes))
    floors = found.keep("floors", lambda: _floors(engine, sizes, speed))
    if steps and floors:
        found.keep("targets", lambda: _targets(steps, floors, sizes.adapters))
    found.keep("tokens_per_second", lambda: _throughput(engine, sizes))
    found.keep("calls_that_waited_for_the_device", lambda: _waits(setting, engine))
    engine.core.stepper.late = False
    found.keep("decode_step_ms_with_tokens_read_at_once", lambda: _steps(engine, sizes))
    engine.core.stepper.late = True


def _steps(engine: LocalEngine, sizes: Sizes) -> Figures:
    """Medians of a decode step with a full batch: of the base model, of few adapters and of one for each row."""
    found: Figures = {}
    rows = sizes.adapters
    for adapters in sorted({0, min(4, rows), rows}):
        _generate(engine, sizes, rows, lambda i, n=adapters: f"wide-{i % n}" if n else None)
        records = engine.core.timeline.steps(sizes.new_tokens - 1)
        decodes = [r for r in records if not r.batch.prefill_tokens]
        fullest = max(r.batch.decode_rows for r in decodes)  # all rows, unless adapters came late for so few tokens
        steps = [r.seconds for r in decodes if r.batch.decode_rows == fullest]
        found[f"{fullest} rows, {adapters} adapters"] = round(1000 * statistics.median(steps), 3)
        print(list(found.items())[-1], flush=True)
    return found


def _floors(engine: LocalEngine, sizes: Sizes, speed: float) -> Figures:
    """What a full step cannot be faster than, at so many bytes a second: reading the weights that every step multiplies
    with, and a different adapter for each row."""
    model = engine.loaded.base.model
    weights = sum(p.nbytes for p in model.parameters()) - model.get_input_embeddings().weight.nbytes
    adapters = sizes.adapters * engine.loaded.base.adapter_bytes(RANK)
    return {
        "bandwidth_gb_s": round(speed / 1e9, 1),
        "weights_ms": round(1000 * weights / speed, 3),
        "adapters_ms": round(1000 * adapters / speed, 3),
    }


def _targets(steps: Figures, floors: Figures, rows: int) -> Figures:
    """As `docs/performance.md` lists them; nothing where steps were not full."""
    base, few, many = (steps.get(f"{rows} rows, {n} adapters") for n in (0, min(4, rows), rows))
    if not (base and few and many):
        return {}
    return {
        "base_over_floor": round(base / floors["weights_ms"], 3),
        "added_by_different_adapters_over_floor": round((many - base) / floors["adapters_ms"], 3),
        "four_adapters_over_base": round(few / base, 3),
    }


def _waits(setting: Setting, engine: LocalEngine) -> dict[str, int]:
    """Where in the code, and how often, the host waits for the device unasked while a batch is served."""
    if not setting.on_gpu:
        return {}
    sizes = setting.sizes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            _generate(engine, sizes, sizes.adapters, lambda i: f"wide-{i}")
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found = Counter(f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message))
    print(f"waited in {found}", flush=True)
    return dict(found)


def _throughput(engine: LocalEngine, sizes: Sizes) -> Figures:
    """Rank 8 on attention, drawn by Zipf's law from 5 and from all that are registered; a round each, by turns."""
    rng, requests = random.Random(0), 4 * sizes.adapters
    speeds: dict[int, list[float]] = {5: [], sizes.registered: []}
    for _ in range(sizes.rounds):
        for registered, found in speeds.items():
            seconds = _generate(
                engine, sizes, requests, lambda _, n=registered: f"narrow-{min(int(rng.paretovariate(1.0)), n) - 1}"
            )
            found.append(requests * sizes.new_tokens / seconds)
    medians = {n: statistics.median(found[1:]) for n, found in speeds.items()}
    figures = {f"{n} adapters": round(speed, 1) for n, speed in medians.items()}
    print(figures, flush=True)
    return figures | {"ratio": round(medians[sizes.registered] / medians[5], 3)}


def _generate(engine: LocalEngine, sizes: Sizes, requests: int, adapter: Callable[[int], str | None]) -> float:
    """Seconds of so many requests at once."""
    rng = random.Random(1)
    began = time.perf_counter()
    ids = [
        engine.submit(
            [rng.randrange(3, sizes.vocabulary) for _ in range(sizes.prompt)], adapter(i), max_tokens=sizes.new_tokens
        )
        for i in range(requests)
    ]
    for request in ids:
        engine.result(request)
    return time.perf_counter() - began


@torch.inference_mode()
def _peft(setting: Setting, base: Path, adapters: Sequence[Path]) -> float:
    """PEFT's mixed batch over as many rows and folders, a quarter of the tokens: it is slow."""
    sizes = setting.sizes
    model = peft(setting, base, adapters)
    prompts = torch.randint(3, sizes.vocabulary, (sizes.adapters, sizes.prompt), device=setting.device)
    new = max(2, sizes.new_tokens // 4)
    names = [f"a{i % len(adapters)}" for i in range(sizes.adapters)]
    speeds = []
    for _ in range(2):
        began = time.perf_counter()
        model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            adapter_names=names,
        ).cpu()
        speeds.append(sizes.adapters * new / (time.perf_counter() - began))
    print(f"PEFT's mixed batch: {speeds[-1]:.1f} tokens/s", flush=True)
    return round(speeds[-1], 1)
