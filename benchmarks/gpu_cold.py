"""What an adapter that lies in host memory only costs: its request's first token, and everybody else's next ones.

Requests stream on adapters that are on the device. Beside them come others, one at a time: on an adapter that is there,
and on one that has to be copied first.
"""

import random
import statistics
import time
from itertools import pairwise
from typing import Any

from gpu_cases import Setting, Sizes
from gpu_models import ALL, KINDS, build
from timed_engine import TimedEngine

Figures = dict[str, Any]


def measure(setting: Setting) -> Figures:
    sizes = setting.sizes
    streams = sizes.adapters // 2
    folders = build(setting, sizes, setting.folder, ALL, 16, min(streams, KINDS))
    names = {f"on-device-{i}": folders[i % len(folders)] for i in range(streams)}
    names |= {f"cold-{i}": folders[i % len(folders)] for i in range(sizes.newcomers)}
    engine = TimedEngine(setting.folder / "base", setting.folder / "cache", names, adapter_slots=streams + 1)
    for name in names:  # into host memory; the last are on the device then, the first are not
        engine.generate([1, 2, 3], name, max_tokens=1)
    asked = _requests(engine, sizes, streams)
    try:
        return {
            "streams": streams,
            "nobody_comes": _gaps(engine, _wait(engine, sizes, asked[0])),
            "resident": _newcomers(engine, sizes, [f"on-device-{i % streams}" for i in range(sizes.newcomers)]),
            "cold": _newcomers(engine, sizes, [f"cold-{i}" for i in range(sizes.newcomers)]),
        }
    finally:
        for request in asked:
            engine.abort(request)
        engine.close()


def _requests(engine: TimedEngine, sizes: Sizes, streams: int) -> list[int]:
    """Streams that last as long as they are looked at."""
    asked = [engine.submit(_prompt(sizes, i), f"on-device-{i}", max_tokens=4000) for i in range(streams)]
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
    figures = _gaps(engine, began) | {
        "first_token_ms": round(statistics.median(first), 3),
        "slowest_first_token_ms": round(max(first), 3),
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
