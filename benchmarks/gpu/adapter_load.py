"""The cost of loading an adapter from host memory, for its request's first token and for other requests.

New requests arrive one at a time, with adapters that are on the device and with adapters that must be copied first,
both alone and while requests stream with their own adapters. The comparison isolates the load, because a new request's
prompt takes its part of a step in either case.
"""

import random
import statistics
import time
from itertools import pairwise
from typing import Any

from benchmarks.gpu.cases import Setting, Sizes
from benchmarks.gpu.models import ALL, KINDS, build
from benchmarks.lib.partial_results import PartialResults
from benchmarks.lib.timed_engine import TimedEngine

Figures = dict[str, Any]


def measure(setting: Setting, results: PartialResults) -> None:
    sizes = setting.sizes
    streams = sizes.adapters // 2
    folders = build(setting, sizes, setting.folder, ALL, 16, min(streams, KINDS))
    names = {f"other-{i}": folders[i % len(folders)] for i in range(2 * sizes.new_requests)}
    names |= {f"stream-{i}": folders[i % len(folders)] for i in range(streams)}
    folder, slots = setting.folder, streams + 1
    engine = TimedEngine(folder / "base", folder / "cache", names, adapter_slots=slots, **setting.memory_settings)
    streaming: list[int] = []
    try:
        for name in names:  # loads it into host memory; the streams' adapters come last and stay on the device
            engine.generate([1, 2, 3], name, max_tokens=1)
        results.record("streams", lambda: streams)
        alone = results.record("alone", lambda: _both(engine, sizes))
        streaming += _start_streams(engine, sizes, streams)
        results.record("streams_only", lambda: _gaps(engine, _wait(engine, sizes, streaming[0])))
        busy = results.record("during_streams", lambda: _both(engine, sizes))
        if alone and busy:
            results.record("targets", lambda: _targets(alone, busy))
    finally:
        for request in streaming:
            engine.abort(request)
        engine.close()


def _targets(alone: Figures, busy: Figures) -> Figures:
    """Return the figures that `docs/performance.md` lists."""
    added = {
        name: round(case["cold"]["first_token_ms"] - case["resident"]["first_token_ms"], 3)
        for name, case in (("alone", alone), ("during_streams", busy))
    }
    stretched = {
        gap: round(busy["cold"][gap] / busy["resident"][gap], 3) for gap in ("gap_ms", "gap_p99_ms", "longest_gap_ms")
    }
    figures = {"first_token_added_ms": added, "others_gap_stretched": stretched}
    print(figures, flush=True)
    return figures


def _both(engine: TimedEngine, sizes: Sizes) -> Figures:
    """Measure new requests with adapters that are on the device, and as many with adapters that are not."""
    on_device = [resident.key.digest for resident in engine.core.adapters.residents()][: sizes.new_requests]
    found = {"resident": _send_requests(engine, sizes, on_device)}
    on_device = [resident.key.digest for resident in engine.core.adapters.residents()]
    cold = [f"other-{i}" for i in range(2 * sizes.new_requests) if f"other-{i}" not in on_device][: sizes.new_requests]
    before = engine.core.adapters.counters.loads
    found["cold"] = _send_requests(engine, sizes, cold)
    loads = engine.core.adapters.counters.loads - before
    assert loads == len(cold), f"{loads} of {len(cold)} new requests were cold"
    return found


def _start_streams(engine: TimedEngine, sizes: Sizes, streams: int) -> list[int]:
    """Start streams that outlast the measurement."""
    requests = [engine.submit(_prompt(sizes, i), f"stream-{i}", max_tokens=4000) for i in range(streams)]
    for request in requests:
        engine.wait_for(request, 2)
    return requests


def _wait(engine: TimedEngine, sizes: Sizes, request: int) -> float:
    """Wait for some steps without new requests; return the time of their start."""
    began = time.perf_counter()
    engine.wait_for(request, len(engine.tokens(request)) + sizes.new_tokens)
    return began


def _send_requests(engine: TimedEngine, sizes: Sizes, adapters: list[str]) -> Figures:
    """Send sequential requests of one token each; return their first-token times and the gaps between steps."""
    began, first = time.perf_counter(), []
    for i, adapter in enumerate(adapters):
        request = engine.submit(_prompt(sizes, 1000 + i), adapter, max_tokens=1)
        engine.result(request)
        first.append(1000 * (engine.first[request] - engine.submitted[request]))
    figures = {
        "new_requests": len(first),
        "first_token_ms": round(statistics.median(first), 3),
        "slowest_first_token_ms": round(max(first), 3),
        **_gaps(engine, began),  # idle time if there are no streams
    }
    print(figures, flush=True)
    return figures


def _gaps(engine: TimedEngine, began: float) -> Figures:
    """Return the gaps between the ends of steps since `began`: the inter-token time of the streams."""
    ends = [record.ended for record in engine.core.timeline.steps() if record.ended > began * 1e9]
    gaps = sorted((b - a) / 1e6 for a, b in pairwise(ends))
    return {
        "steps": len(ends),
        "gap_ms": round(statistics.median(gaps), 3),
        "gap_p99_ms": round(gaps[int(0.99 * (len(gaps) - 1))], 3),
        "longest_gap_ms": round(gaps[-1], 3),
    }


def _prompt(sizes: Sizes, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, sizes.vocabulary) for _ in range(sizes.prompt)]
