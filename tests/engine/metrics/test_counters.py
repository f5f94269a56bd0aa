"""The engine's own counts, compared with the requests that it received."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loragate.engine.adapters.disk_tier import DiskTier
from loragate.engine.local import LocalEngine
from loragate.engine.metrics.counters import MAX_ADAPTERS, AdapterMetrics, EngineMetrics, Histogram
from loragate.engine.sequence.output import ErrorCode, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.server.stats import build_stats
from loragate.v1 import engine_pb2 as pb

PROMPT = [5, 9, 13, 21]


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path, 1)


def until(condition: Callable[[], bool]) -> None:
    """Poll, because the step thread sends no signal after counting."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def count(histogram: pb.Histogram) -> int:
    return sum(histogram.counts)


def settled(engine: LocalEngine, disk: DiskTier) -> pb.StatsResponse:
    """Wait until the last step is counted: a step ends shortly after its outputs are sent."""
    request = pb.StatsRequest(adapter_rows=100, tenants=True)
    until(lambda: sum(engine.core.metrics.step_seconds.read().counts) == engine.core.metrics.steps)
    return build_stats(engine.core, disk, request)


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert (histogram.read().counts, histogram.read().sum) == ((2, 2, 1), 7.5)


def test_known_requests_are_counted_exactly(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    began = time.monotonic()
    engine = start(prefix_cache=False)
    for adapter, tokens in ((None, 8), ("a", 5), ("a", 1), ("b", 3)):
        assert len(engine.generate(PROMPT, adapter, max_tokens=tokens)) == tokens
    two = engine.submit(PROMPT, "b", n=2, max_tokens=4)
    engine.result(two, n=2)
    stats = settled(engine, disk)
    elapsed = time.monotonic() - began

    assert (stats.requests, stats.prompt_tokens) == (5, 5 * len(PROMPT))
    assert stats.generated_tokens == 8 + 5 + 1 + 3 + 2 * 4
    assert (stats.ran_to_length, stats.stopped, stats.aborted, stats.shed) == (6, 0, 0, 0)
    assert sum(failure.count for failure in stats.failures) == 0
    assert (stats.running, stats.waiting, stats.waiting_for_adapter) == (0, 0, 0)
    assert (stats.adapter_loads, stats.adapter_reads, stats.slots_used) == (2, 2, 2)
    assert not stats.demand

    # six completions: each waits once, has a first token once, and a gap before every other token
    assert count(stats.queue_seconds) == count(stats.time_to_first_token_seconds) == 6
    assert count(stats.inter_token_latency_seconds) == stats.generated_tokens - 6
    for times in (stats.queue_seconds, stats.step_seconds, stats.time_to_first_token_seconds):
        assert 0 < times.sum < 6 * elapsed
    assert stats.queue_seconds.sum < stats.time_to_first_token_seconds.sum

    # every token that went through the model is in a step: prompts, and all but the last of each completion's tokens
    assert count(stats.step_seconds) == count(stats.step_tokens) == count(stats.step_sequences) == stats.steps
    assert stats.step_prefill_tokens.sum == 6 * len(PROMPT)
    assert stats.step_tokens.sum == 6 * len(PROMPT) + stats.generated_tokens - 6
    assert stats.recent_steps.steps == stats.steps
    assert 0 < stats.recent_steps.p50 <= stats.recent_steps.p90 <= stats.recent_steps.p99

    rows = {row.adapter.digest: row for row in stats.adapters}
    assert [rows[""].id, len(rows), stats.more_adapters] == ["base", 3, False]
    assert [(rows[name].requests, rows[name].generated_tokens, rows[name].loads) for name in ("", "a", "b")] == [
        (1, 8, 0),
        (2, 6, 1),
        (2, 11, 1),
    ]
    for field in ("requests", "prompt_tokens", "generated_tokens"):
        assert sum(getattr(row, field) for row in stats.adapters) == getattr(stats, field), field
    for seconds, counted in (("queue_seconds", "started"), ("time_to_first_token_seconds", "first_tokens")):
        total = getattr(stats, seconds)
        assert sum(getattr(row, seconds) for row in stats.adapters) == pytest.approx(total.sum), seconds
        assert sum(getattr(row, counted) for row in stats.adapters) == count(total), counted


def test_every_end_is_counted_by_its_reason(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start()
    engine.result(engine.submit([], max_tokens=1))
    engine.result(engine.submit(PROMPT, "missing"))
    running = engine.submit(PROMPT, n=2, max_tokens=400)
    engine.wait_for(running, 1)
    engine.abort(running)
    stopping = engine.generate(PROMPT, max_tokens=4)
    engine.generate(PROMPT, max_tokens=4, stop_token_ids=frozenset(stopping[:1]))
    stats = settled(engine, disk)
    failures = {failure.code: failure.count for failure in stats.failures if failure.count}
    assert failures == {pb.ERROR_CODE_INVALID_REQUEST: 1, pb.ERROR_CODE_ADAPTER_UNAVAILABLE: 1}
    assert (stats.aborted, stats.stopped, stats.ran_to_length) == (2, 1, 1)
    assert not engine.core.metrics.open()


def test_running_and_waiting_requests_are_counted(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start(adapter_slots=1)
    holds = engine.submit(PROMPT, "a", max_tokens=400)
    engine.wait_for(holds, 1)
    waits = engine.submit(PROMPT, "b", max_tokens=1)
    until(lambda: engine.core.metrics.requests == 2)
    stats, everything = (build_stats(engine.core, disk, pb.StatsRequest(tenants=each)) for each in (False, True))
    engine.abort(holds)
    assert (stats.running, stats.waiting, stats.waiting_for_adapter) == (1, 1, 1)
    assert [(d.adapter.digest, d.running, d.waiting) for d in stats.demand] == [("a", 1, 0), ("b", 0, 1)]
    assert [(r.adapter.digest, r.id) for r in stats.residents] == [("a", stats.demand[0].id)]
    assert stats.residents[0].rank > 0
    assert [(t.tenant_id, t.running, t.waiting) for t in everything.tenants] == [("tenant", 1, 1)]
    assert not stats.adapters, "they were not requested"
    assert not stats.tenants, "nor for them"
    engine.result(waits)


def test_idle_adapters_are_listed_with_their_highest_tier(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start(adapter_slots=1)
    for adapter in ("a", "b"):
        engine.generate(PROMPT, adapter, max_tokens=1)
    (resident,) = engine.core.adapters.residents()
    assert resident.key.digest == "b"
    elsewhere = AdapterKey("tenant", "c")
    on_disk = [resident.key, elsewhere, *engine.core.adapters.host.keys()]
    stats = build_stats(engine.core, disk, pb.StatsRequest(), on_disk)
    assert [(r.adapter.digest, r.rank) for r in stats.residents] == [("b", resident.rank)]
    host, disked = stats.cached
    assert (host.adapter.digest, host.tier) == ("a", pb.TIER_HOST)
    assert host.rank > 0
    assert (disked.adapter.digest, disked.tier, disked.rank, disked.id) == ("c", pb.TIER_DISK, 0, elsewhere.opaque_id)


def test_preempted_completions_are_counted_once(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start(kv_cache_tokens=48, max_model_len=48, prefix_cache=False)
    requests = [engine.submit(PROMPT, max_tokens=24) for _ in range(3)]
    for request in requests:
        engine.result(request)
    stats = settled(engine, disk)
    assert stats.preemptions > 0
    assert count(stats.queue_seconds) == count(stats.time_to_first_token_seconds) == stats.ran_to_length == 3
    assert count(stats.inter_token_latency_seconds) == stats.generated_tokens - 3 == 69
    assert stats.step_tokens.sum > 3 * len(PROMPT) + 69, "preempted sequences are recomputed"


def test_drafts_are_not_counted_as_prompts(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start()
    bias = ((7, 100.0),)  # makes the model repeat one token: every draft is accepted
    engine.generate(PROMPT, max_tokens=30, draft_tokens=4, logit_bias=bias)
    stats = settled(engine, disk)
    assert stats.spec_decode_accepted_tokens == stats.spec_decode_draft_tokens > 0
    assert stats.steps < stats.generated_tokens == 30
    assert stats.step_prefill_tokens.sum == len(PROMPT)
    assert stats.step_tokens.sum == len(PROMPT) + 29
    assert (count(stats.time_to_first_token_seconds), count(stats.inter_token_latency_seconds)) == (1, 29)


def test_pages_of_adapters(start: Callable[..., LocalEngine], disk: DiskTier) -> None:
    engine = start()
    for adapter in (None, "a", "b", "c", "d"):
        engine.generate(PROMPT, adapter, max_tokens=1)
    seen: list[str] = []
    more = True
    while more:
        page = build_stats(engine.core, disk, pb.StatsRequest(adapter_rows=2, adapters_after=seen[-1] if seen else ""))
        assert 1 <= len(page.adapters) <= 2
        seen += [row.id for row in page.adapters]
        more = page.more_adapters
    assert seen == sorted(set(seen))
    assert len(seen) == 5


def test_opaque_ids_depend_on_tenant_and_content() -> None:
    keys = [AdapterKey(tenant, digest) for tenant in ("t1", "t2") for digest in ("sha256:aa", "sha256:bb")]
    assert len({key.opaque_id for key in keys}) == 4
    assert keys[0].opaque_id == AdapterKey("t1", "sha256:aa").opaque_id


def test_a_hundred_thousand_adapters_take_bounded_memory() -> None:
    metrics = EngineMetrics()
    params = SamplingParams(max_tokens=1, seed=0)
    for number in range(100_000):
        request = Request(1, number, (1, 2), AdapterKey("tenant", str(number)), params)
        metrics.submitted(request)
        metrics.emitted([Output(request, 0, token=7, finish=FinishReason.LENGTH)])
    rows = metrics.adapters.read()
    assert len(rows) == MAX_ADAPTERS
    assert AdapterKey("tenant", "99999") in rows
    assert not metrics.open()
    assert (metrics.requests, metrics.generated_tokens) == (100_000, 100_000), "totals include every tenant"


def test_adapters_in_use_are_discarded_last() -> None:
    adapters = AdapterMetrics()
    busy = AdapterKey("t", "busy")
    adapters.asked_for(busy)
    for number in range(3 * MAX_ADAPTERS):
        adapters.asked_for(AdapterKey("t", str(number)))
        if number % 100 == 0:
            adapters.asked_for(busy).requests += 1
    assert adapters.read()[busy].requests == 31
    adapters.loaded(AdapterKey("t", "0"))
    assert adapters.read()[AdapterKey("t", "0")].loads == 1


def test_a_repeated_request_id_breaks_nothing() -> None:
    metrics = EngineMetrics()
    params = SamplingParams(max_tokens=2, seed=0)
    twins = [Request(1, 1, (1, 2), None, params) for _ in range(2)]
    for twin in twins:
        metrics.submitted(twin)
        metrics.scheduled({Sequence(twin, 0): 2})
    for twin in twins:
        metrics.emitted([Output(twin, 0, token=3)])
    metrics.left(twins[0], 0)
    metrics.emitted([Output(twins[1], 0, finish=FinishReason.ERROR, error=(ErrorCode.INTERNAL, "x"))])
    assert (metrics.aborted, metrics.failed[ErrorCode.INTERNAL], metrics.generated_tokens) == (1, 1, 2)
    assert not metrics.open()


def test_readers_never_see_a_half_written_table() -> None:
    """One thread writes without pause; the sums that others read are always consistent."""
    metrics = EngineMetrics()
    params = SamplingParams(max_tokens=1, seed=0)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            request = Request(1, number, (1,), AdapterKey("t", str(number % 3000)), params, n=2)
            metrics.submitted(request)
            metrics.scheduled({Sequence(request, index): 1 for index in range(2)})
            metrics.emitted([Output(request, i, token=1, finish=FinishReason.LENGTH) for i in range(2)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            assert set(metrics.open().values()) <= {1, 2}
            assert len(metrics.adapters.read()) <= MAX_ADAPTERS + 1
            before = sum(metrics.step_tokens.read().counts)
            assert sum(metrics.step_tokens.read().counts) >= before
    finally:
        stop.set()
        writer.join()
    assert metrics.generated_tokens == 2 * metrics.requests
