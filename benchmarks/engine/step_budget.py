"""The effect of long prompts on the inter-token time of other requests, with and without a target step time.

Eight sequences decode while prompts of 400 tokens arrive one after the other, on the model of fairness.py. The duration
of a step with decode rows is the gap between two tokens of these sequences. `engine.max_step_ms` is four times a step
without prefill, measured in the same run, or not set.

    python -m benchmarks.engine.step_budget             # half a minute on one thread
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.engine.fairness import build, prompt
from benchmarks.lib.report import write
from loragate.engine.local import LocalEngine

DECODING, PROMPTS, PROMPT, SHORT = 8, 12, 400, 16
TARGET_IN_STEPS = 4


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        build(directory)
        free = measure(directory, None)
        bounded = measure(directory, TARGET_IN_STEPS * free["decode_step_p50_ms"])
    figures = {
        "decoding": DECODING,
        "prompt_tokens": PROMPT,
        "without_target": free,
        "with_target": bounded,
        "p99_gap_with_over_without": round(bounded["gap_p99_ms"] / free["gap_p99_ms"], 2),
    }
    show(figures)
    print(f"written to {write('step_budget', figures).relative_to(Path.cwd())}")


def measure(directory: Path, target: float | None) -> dict[str, Any]:
    """Return the gaps between tokens of the decoding sequences, and each prompt's time to first token."""
    engine = LocalEngine(directory / "base", directory / "cache", {}, threads=1, max_step_ms=target)
    decoding = [engine.submit(prompt(i, SHORT), max_tokens=480) for i in range(DECODING)]
    for request in decoding:
        engine.wait_for(request, 8)
    warm = engine.submit(prompt(99, PROMPT), max_tokens=1)  # the engine measures the cost of prefill here
    engine.result(warm)
    start = len(engine.core.timeline.steps())
    for i in range(PROMPTS):
        engine.result(engine.submit(prompt(100 + i, PROMPT), max_tokens=1))
    for request in decoding:
        engine.abort(request)
    engine.close()
    steps = [step for step in engine.core.timeline.steps()[start:] if step.batch.decode_rows]
    mixed = [step for step in steps if step.batch.prefill_tokens]
    alone = [step.seconds for step in engine.core.timeline.steps()[:start] if step.batch.decode_rows == DECODING]
    gaps = sorted(1000 * step.seconds for step in steps)
    return {
        "max_step_ms": None if target is None else round(target, 1),
        "decode_step_p50_ms": round(1000 * statistics.median(alone), 1),
        "gap_p50_ms": round(statistics.median(gaps), 1),
        "gap_p99_ms": round(gaps[-(-len(gaps) * 99 // 100) - 1], 1),
        "prefill_tokens_a_step": round(statistics.mean(step.batch.prefill_tokens for step in mixed), 1),
        "prompt_seconds": round(sum(step.seconds for step in steps) / PROMPTS, 3),
    }


def show(figures: dict[str, Any]) -> None:
    table = Table("max_step_ms", "gap p50, ms", "gap p99, ms", "prefill tokens per step", "per prompt, s")
    for case in (figures["without_target"], figures["with_target"]):
        cells = (case["max_step_ms"], case["gap_p50_ms"], case["gap_p99_ms"], case["prefill_tokens_a_step"])
        table.add_row(*map(str, cells), str(case["prompt_seconds"]))
    Console().print(table)


if __name__ == "__main__":
    main()
