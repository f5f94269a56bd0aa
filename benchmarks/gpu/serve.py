"""Decode steps and throughput of our engine with few and many adapters, compared with PEFT's mixed batch."""

import random
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.cases import Setting, Sizes
from benchmarks.gpu.models import ALL, ATTENTION, KINDS, build, peft
from benchmarks.gpu.stopwatch import bandwidth
from benchmarks.lib.partial_results import PartialResults
from loragate.engine.local import LocalEngine

RANK = 16  # of the adapters on all linears

Figures = dict[str, Any]


def serve(setting: Setting, results: PartialResults) -> None:
    folder, sizes = setting.folder, setting.sizes
    wide = build(setting, sizes, folder, ALL, RANK, min(sizes.adapters, KINDS))
    narrow = build(setting, sizes, folder, ATTENTION, 8, min(sizes.registered, KINDS))
    names = {f"wide-{i}": wide[i % len(wide)] for i in range(sizes.adapters)}
    names |= {f"narrow-{i}": narrow[i % len(narrow)] for i in range(sizes.registered)}
    speed = bandwidth(setting)  # before the engine takes the memory
    setting.free()
    with running_engine(setting, names) as engine:
        _serve(setting, engine, speed, results)
    del engine
    setting.free()
    results.record("peft_mixed_batch_tokens_per_second", lambda: _peft(setting, folder / "base", wide))


@contextmanager
def running_engine(setting: Setting, names: Mapping[str, Path], **options: Any) -> Iterator[LocalEngine]:
    """Run an engine that has loaded the adapters `wide-…`, so that measured steps are full."""
    folder, adapters = setting.folder, setting.sizes.adapters
    engine = LocalEngine(
        folder / "base",
        folder / "cache",
        names,
        adapter_slots=adapters,
        async_scheduling="on",
        **setting.memory_settings,
        **options,
    )
    try:
        for i in range(adapters):
            engine.generate([1, 2, 3], f"wide-{i}", max_tokens=1)
        yield engine
    finally:
        engine.close()


def _serve(setting: Setting, engine: LocalEngine, speed: float, results: PartialResults) -> None:
    sizes = setting.sizes
    steps = results.record("decode_step_ms", lambda: decode_steps(engine, sizes))
    floors = results.record("floors", lambda: _floors(engine, sizes, speed))
    if steps and floors:
        results.record("targets", lambda: _targets(steps, floors, sizes.adapters))
    results.record("tokens_per_second", lambda: _throughput(engine, sizes))
    results.record("host_synchronizations", lambda: _synchronizations(setting, engine))
    engine.core.stepper.late = False
    results.record("decode_step_ms_with_tokens_read_at_once", lambda: decode_steps(engine, sizes))
    engine.core.stepper.late = True


def decode_steps(engine: LocalEngine, sizes: Sizes) -> Figures:
    """Return the median decode step of a full batch without adapters, with few, and with one for each row."""
    found: Figures = {}
    rows = sizes.adapters
    for adapters in sorted({0, min(4, rows), rows}):
        _generate(engine, sizes, rows, lambda i, n=adapters: f"wide-{i % n}" if n else None)
        records = engine.core.timeline.steps(sizes.new_tokens - 1)
        decodes = [r for r in records if not r.batch.prefill_tokens]
        fullest = max(
            r.batch.decode_rows for r in decodes
        )  # all rows, unless adapters loaded too late for so few tokens
        steps = [r.seconds for r in decodes if r.batch.decode_rows == fullest]
        found[f"{fullest} rows, {adapters} adapters"] = round(1000 * statistics.median(steps), 3)
        print(list(found.items())[-1], flush=True)
    return found


def _floors(engine: LocalEngine, sizes: Sizes, speed: float) -> Figures:
    """Return the lower bounds of a full step at `speed` bytes per second.

    They are the times to read the weights that every step multiplies with, and a different adapter for each row. No
    adapter is on the head.
    """
    base = engine.loaded.base
    weights = sum(p.nbytes for p in base.model.parameters()) - base.model.get_input_embeddings().weight.nbytes
    groups = {id(g): g for name, g in base.groups_by_module.items() if name.rpartition(".")[2] in ALL}.values()
    numbers = sum(RANK * (g.in_features * len(g.members) + g.adapters.out_features) for g in groups)
    adapters = sizes.adapters * numbers * base.adapter_dtype.itemsize
    return {
        "bandwidth_gb_s": round(speed / 1e9, 1),
        "weights_ms": round(1000 * weights / speed, 3),
        "adapters_ms": round(1000 * adapters / speed, 3),
    }


def _targets(steps: Figures, floors: Figures, rows: int) -> Figures:
    """Return the figures that `docs/performance.md` lists; an empty dict if steps were not full."""
    base, few, many = (steps.get(f"{rows} rows, {n} adapters") for n in (0, min(4, rows), rows))
    if not (base and few and many):
        return {}
    return {
        "base_over_floor": round(base / floors["weights_ms"], 3),
        "added_by_different_adapters_over_floor": round((many - base) / floors["adapters_ms"], 3),
        "four_adapters_over_base": round(few / base, 3),
    }


def _synchronizations(setting: Setting, engine: LocalEngine) -> dict[str, int]:
    """Return the places in the code where the host synchronizes implicitly while a batch is served, with counts."""
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
    print(f"implicit synchronizations: {found}", flush=True)
    return dict(found)


def _throughput(engine: LocalEngine, sizes: Sizes) -> Figures:
    """Return tokens per second of rank 8 on attention, Zipf-distributed over 5 and over all adapters, in turns."""
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
    """Run requests at once; return their total seconds."""
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
    """Return tokens per second of PEFT's mixed batch with the same rows and a quarter of the tokens, as it is slow."""
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
