"""The timeline as a trace that Perfetto opens."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from loragate.engine.local import LocalEngine
from loragate.engine.metrics.counters import BatchSize
from loragate.engine.metrics.timeline import EngineState, Timeline, percentile
from loragate.engine.metrics.trace_events import trace_json

PROMPT = [5, 9, 13, 21]
PHASES = ["commands", "schedule", "forward", "sample", "emit"]
_ROUNDING = 1e-3  # microseconds: a nanosecond

Event = dict[str, Any]


def events_of(trace: bytes) -> list[Event]:
    document = json.loads(trace)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = document["traceEvents"]
    return events


def assert_is_well_formed(events: list[Event]) -> None:
    """Check what the format requires of each kind of event, and what Perfetto needs to nest slices."""
    needed = {"M": {"args", "tid"}, "X": {"ts", "dur", "tid"}, "i": {"ts", "tid", "s"}, "C": {"ts", "args"}}
    for event in events:
        assert set(event) >= {"ph", "name", "pid"} | needed[event["ph"]], event
        assert isinstance(event["name"], str)
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)
    assert all(isinstance(v, int) for e in events if e["ph"] == "C" for v in e["args"].values())
    named = {(e["name"], e.get("tid") if e["name"] == "thread_name" else 0) for e in events if e["ph"] == "M"}
    assert named == {("process_name", 0)} | {("thread_name", e["tid"]) for e in events if e["ph"] == "X"} | {
        ("thread_name", 2)
    }
    open_until: list[float] = []
    for event in (event for event in events if event["ph"] == "X"):
        assert event["dur"] >= 0
        while open_until and open_until[-1] <= event["ts"] + _ROUNDING:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + _ROUNDING, "a slice that ends after the one around it"
        open_until.append(end)


def test_a_run_as_a_trace(start: Callable[..., LocalEngine]) -> None:
    engine = start(adapter_slots=1)
    for adapter in ("a", "b", None):
        engine.generate(PROMPT, adapter, max_tokens=3)
    engine.close()
    steps = engine.core.timeline.steps()
    trace = trace_json(steps)
    events = events_of(trace)
    assert_is_well_formed(events)

    slices = [event for event in events if event["ph"] == "X"]
    assert [s["name"] for s in slices] == (["prefill", *PHASES] + ["decode", *PHASES] * 2) * 3
    prefills = [s["args"] for s in slices if s["name"] == "prefill"]
    assert [(args["prefill tokens"], args["decode rows"], args["sequences"]) for args in prefills] == [(4, 0, 1)] * 3
    for step, inner in ((slices[i], slices[i + 1 : i + 6]) for i in range(0, len(slices), 6)):
        assert sum(phase["dur"] for phase in inner) == pytest.approx(step["dur"], abs=_ROUNDING)
        for one, two in pairwise(inner):
            assert one["ts"] + one["dur"] == pytest.approx(two["ts"], abs=_ROUNDING)

    changes = Counter[str]()
    for event in events:
        if event["ph"] == "i":
            changes[event["name"]] += event["args"]["count"]
    assert changes == {"loads": 1, "evictions": 1}, "b came and a left; a's load was before the first step"
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"batch", "requests", "KV blocks", "adapter slots"}
    assert len(counters) == 4 * len(steps)


def test_a_trace_reveals_nothing_about_tenants(start: Callable[..., LocalEngine]) -> None:
    engine = start()
    engine.generate([77, 78, 79], "a", max_tokens=2)
    events = events_of(trace_json(engine.core.timeline.steps()))
    named = {each["args"].pop("name") for each in events if each["ph"] == "M"}
    assert named == {"loragate engine", "step loop", "loads, evictions, preemptions"}
    assert {each["name"] for each in events if each["ph"] != "M"} <= {
        "prefill", "decode", *PHASES, "batch", "requests", "KV blocks", "adapter slots", "loads", "evictions"
    }  # fmt: skip
    values = [value for each in events for value in each.get("args", {}).values()]
    assert all(isinstance(value, int) for value in values), "numbers alone"
    assert not {77, 78, 79} & set(values)


def record(timeline: Timeline, **state: int) -> None:
    timeline.begin()
    for phase in PHASES:
        timeline.ended(phase)
    zeros = dict.fromkeys(EngineState._fields, 0)
    timeline.record(BatchSize(1, 1, 0), EngineState(**zeros | state))


def test_only_the_last_steps_are_kept() -> None:
    timeline = Timeline(remembered=10)
    for number in range(25):
        record(timeline, preemptions=number // 5)
    assert [step.number for step in timeline.steps()] == list(range(16, 26))
    assert [step.number for step in timeline.steps(3)] == [23, 24, 25]
    assert len(timeline.steps(100)) == 10
    instants = [e for e in events_of(trace_json(timeline.steps())) if e["ph"] == "i"]
    assert [(e["name"], e["args"]) for e in instants] == [("preemptions", {"count": 1})]


def test_waiting_for_work_is_not_part_of_a_step() -> None:
    timeline = Timeline()
    timeline.begin()
    timeline.ended("commands")
    record(timeline)
    (step,) = timeline.steps()
    assert [name for name, _ in step.phases] == PHASES
    assert step.began <= step.phases[0][1]


def test_an_empty_timeline_is_a_valid_trace() -> None:
    assert [event["ph"] for event in events_of(trace_json([]))] == ["M"] * 3


def test_percentiles() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert percentile([], 0.5) == 0
    assert percentile([3.0], 0.99) == 3
