"""What an adapter that lies in host memory only costs: its request's first token, and everybody else's next ones.

Newcomers come one at a time, on adapters that are on the device and on others that have to be copied first: alone, and
beside requests that stream on adapters of their own. What is told apart is the load, for a newcomer's prompt takes its
part of a step whatever its adapter.
"""

import random
import statistics
import time
from itertools import pairwise
from typing import Any

from benchmarks.gpu.cases import Setting, Sizes
from benchmarks.gpu.models import ALL, KINDS, build
from benchmarks.lib.partial_results import Findings
from benchmarks.lib.timed_engine import TimedEngine

Figures = dict[str, Any]


def measure(setting: Setting, found: Findings) -> None:
    sizes = setting.sizes
    streams = sizes.adapters // 2
    folders = build(setting, sizes, setting.folder, ALL, 16, min(streams, KINDS))
    names = {f"other-{i}": folders[i % len(folders)] for i in range(2 * sizes.newcomers)}
    names |= {f"stream-{i}": folders[i % len(folders)] for i in range(streams)}
    folder, slots = setting.folder, streams + 1
    engine = TimedEngine(folder / "base", folder / "cache", names, adapter_slots=slots, **setting.room)
    asked: list[int] = []
    try:
        for name in names:  # into host memory; those that stream are on the device then, most others are not
            engine.generate([1, 2, 3], name, max_tokens=1)
        found.keep("streams", lambda: streams)
        alone = found.keep("alone", lambda: _both(engine, sizes))
        asked += _requests(engine, sizes, streams)
        found.keep("nobody_comes", lambda: _gaps(engine, _wait(engine, sizes, asked[0])))
        beside = found.keep("beside_streams", lambda: _both(engine, sizes))
        if alone and beside:
            found.keep("targets", lambda: _targets(alone, beside))
    finally:
        for request in asked:
            engine.abort(request)
        engine.close()


def _targets(alone: Figures, beside: Figures) -> Figures:
    """As `docs/performance.md` lists them."""
    added = {
        name: round(found["cold"]["first_token_ms"] - found["resident"]["first_token_ms"], 3)
        for name, found in (("alone", alone), ("beside_streams", beside))
    }
    stretched = {
        gap: round(beside["cold"][gap] / beside["resident"][gap], 3)
        for gap in ("gap_ms", "gap_p99_ms", "longest_gap_ms")
    }
    figures = {"first_token_added_ms": added, "others_gap_stretched": stretched}
    print(figures, flush=True)
    return figures


def _both(engine: TimedEngine, sizes: Sizes) -> Figures:
    """Newcomers on adapters that are on the device, and as many on adapters that are not."""
    here = [resident.key.digest for resident in engine.core.adapters.residents()][: sizes.newcomers]
    found = {"resident": _newcomers(engine, sizes, here)}
    here = [resident.key.digest for resident in engine.core.adapters.residents()]
    away = [f"other-{i}" for i in range(2 * sizes.newcomers) if f"other-{i}" not in here][: sizes.newcomers]
    before = engine.core.adapters.counters.loads
    found["cold"] = _newcomers(engine, sizes, away)
    loads = engine.core.adapters.counters.loads - before
    assert loads == len(away), f"{loads} of {len(away)} newcomers were cold"
    return found


def _requests(engine: TimedEngine, sizes: Sizes, streams: int) -> list[int]:
    """Streams that last as long as they are looked at."""
    asked = [engine.submit(_prompt(sizes, i), f"stream-{i}", max_tokens=4000) for i in range(streams)]
    for request in asked:
        engine.wait_for(request, 2)
    return asked


def _wait(engine: TimedEngine, sizes: Sizes, request: int) -> float:
    """Some steps in which nobody comes. Returns when they began."""
    began = time.perf_counter()
    engine.wait_for(request, len(engine.tokens(request)) + sizes.new_tokens)
    return began


def _newcomers(engine: TimedEngine, sizes: Sizes, adapters: list[str]) -> Figures:
    """One after the other; each asks for a token."""
    began, first = time.perf_counter(), []
    for i, adapter in enumerate(adapters):
        request = engine.submit(_prompt(sizes, 1000 + i), adapter, max_tokens=1)
        engine.result(request)
        first.append(1000 * (engine.first[request] - engine.submitted[request]))
    figures = {
        "newcomers": len(first),
        "first_token_ms": round(statistics.median(first), 3),
        "slowest_first_token_ms": round(max(first), 3),
        **_gaps(engine, began),  # of idle time, where nobody streams
    }
    print(figures, flush=True)
    return figures


def _gaps(engine: TimedEngine, began: float) -> Figures:
    """Between the ends of steps since then: what those who stream wait for a token."""
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
