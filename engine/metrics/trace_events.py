"""A timeline in Chrome's trace-event format, which Perfetto and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from loragate.engine.metrics.timeline import StepRecord

_PROCESS = 1
_STEPS = 1  # thread
_CHANGES = 2
_COUNTED = ("loads", "evictions", "preemptions")

Event = dict[str, Any]


def trace_json(steps: Sequence[StepRecord]) -> bytes:
    """Return the whole document. Times are microseconds of a monotonic clock."""
    events = [*_names(), *sorted(_events(steps), key=lambda event: event["ts"])]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()


def _names() -> Iterator[Event]:
    yield _metadata("process_name", 0, "loragate engine")
    yield _metadata("thread_name", _STEPS, "step loop")
    yield _metadata("thread_name", _CHANGES, "loads, evictions, preemptions")


def _metadata(what: str, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _events(steps: Iterable[StepRecord]) -> Iterator[Event]:
    before: StepRecord | None = None
    for step in steps:
        yield from _slices(step)
        yield from _counters(step)
        if before is not None:
            yield from _changes(before, step)
        before = step


def _slices(step: StepRecord) -> Iterator[Event]:
    """Yield the step, then its phases within it."""
    batch = step.batch
    args = {
        "step": step.number,
        "sequences": batch.sequences,
        "decode rows": batch.decode_rows,
        "prefill tokens": batch.prefill_tokens,
        "running": step.state.running,
        "waiting": step.state.waiting,
    }
    yield _slice("prefill" if batch.prefill_tokens else "decode", step.began, step.ended) | {"args": args}
    began = step.began
    for name, ended in step.phases:
        yield _slice(name, began, ended)
        began = ended


def _slice(name: str, began: int, ended: int) -> Event:
    duration = (ended - began) / 1000
    return {"ph": "X", "name": name, "pid": _PROCESS, "tid": _STEPS, "ts": began / 1000, "dur": duration}


def _counters(step: StepRecord) -> Iterator[Event]:
    batch, state = step.batch, step.state
    for name, values in (
        ("batch", {"decode rows": batch.decode_rows, "prefill tokens": batch.prefill_tokens}),
        ("requests", {"running": state.running, "waiting": state.waiting}),
        ("KV blocks", {"used": state.kv_blocks}),
        ("adapter slots", {"used": state.slots}),
    ):
        yield {"ph": "C", "name": name, "pid": _PROCESS, "ts": step.began / 1000, "args": values}


def _changes(before: StepRecord, step: StepRecord) -> Iterator[Event]:
    """Yield the loads, evictions and preemptions since the previous step, as one instant event of each kind."""
    for name in _COUNTED:
        count = getattr(step.state, name) - getattr(before.state, name)
        if count:
            at = {"ts": step.began / 1000, "pid": _PROCESS, "tid": _CHANGES}
            yield {"ph": "i", "s": "t", "name": name, "args": {"count": count}} | at
