"""Traces of requests as a collector receives them."""

import asyncio
import inspect
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from otlp_collector import Collector, Received, otlp_collector

from loragate.gateway.calls import span as model_span
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.config.tracing import TracingConfig
from loragate.gateway.tracing import engine as engine_spans
from loragate.gateway.tracing.current import step
from loragate.v1 import engine_pb2 as pb
from loragate.v1.inference_pb2 import GenerateRequest
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 4, "temperature": 0.5}
CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "A question about stars"}]}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with otlp_collector() as running:
        yield running


@pytest.fixture
async def traced(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], collector: Collector
) -> AsyncIterator[Gateway]:
    """The engine reports that a request waited for 5 ms and that its prompt took 2 ms."""
    engine.timings.queue_seconds, engine.timings.prefill_seconds = 0.005, 0.002
    tracing = replace(config, tracing=TracingConfig(collector.endpoint, trust_traceparent=True))
    async with serving(tracing, engine, tenants) as running:
        await running.until_ready()
        yield running


async def spans_of(collector: Collector, root: str, trace: str | None = None) -> dict[str, Received]:
    """Return the spans of the one request whose outermost span has this name, by name. The outermost ends last."""

    def roots(spans: list[Received]) -> list[Received]:
        return [span for span in spans if span.name == root and trace in (None, span.trace)]

    spans = await asyncio.to_thread(collector.until, lambda spans: bool(roots(spans)))
    found = [span for span in spans if span.trace == roots(spans)[-1].trace]
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


async def test_a_chat_from_the_clients_span_to_the_engines_steps(
    traced: Gateway, collector: Collector, upload_to: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loragate.access")
    adapter = await upload_to(traced, "poet")
    began = time.time_ns()
    async with traced.http() as http:
        headers = {"traceparent": SAMPLED, "tracestate": "vendor=secret", "baggage": "user=secret"}
        answer = await http.post("/v1/chat/completions", json=CHAT | {"model": "poet"}, headers=headers)
    usage = answer.json()["usage"]
    spans = await spans_of(collector, "POST /v1/chat/completions")
    call = spans["chat poet:1"]
    root = spans["POST /v1/chat/completions"]

    assert spans.keys() == {root.name, "tokenize", "admission", call.name, "queue", "prefill", "decode"}
    assert {span.trace for span in spans.values()} == {TRACE}
    assert root.parent == PARENT
    for name in ("tokenize", "admission", call.name):
        assert spans[name].parent == root.id
    for name in ("queue", "prefill", "decode"):
        assert spans[name].parent == call.id
    assert traced.engine.submits[-1].traceparent == f"00-{TRACE}-{call.id}-01", "the engine works for the call's span"

    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "loragate",
        "gen_ai.request.model": "poet:1",
        "gen_ai.response.model": MODEL_ID,
        "gen_ai.request.max_tokens": traced.engine.submits[-1].sampling.max_tokens,
        "gen_ai.request.temperature": pytest.approx(traced.engine.submits[-1].sampling.temperature),
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.choice.count": 1,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "loragate.adapter.digest": adapter["digest"],
        "loragate.engine.id": "engine-0",
        "loragate.outcome": "completed",
    }
    assert (
        root.attributes.items()
        >= {
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "loragate.tenant.id": traced.tenant_id,
            "loragate.key.id": traced.key.split("-")[1],
            "loragate.request.id": answer.headers["x-request-id"],
        }.items()
    )
    assert root.service == "loragate-gateway"
    assert {root.span.kind, call.span.kind} == {root.span.SPAN_KIND_SERVER, root.span.SPAN_KIND_CLIENT}

    order = ["tokenize", "admission", "queue", "prefill", "decode"]
    times = [(spans[name].span.start_time_unix_nano, spans[name].span.end_time_unix_nano) for name in order]
    assert all(start <= end for start, end in times)
    assert [start for start, _ in times] == sorted(start for start, _ in times)
    assert [start for start, _ in times[3:]] == [end for _, end in times[2:4]], "queue, prefill, decode: no gaps"
    assert began <= root.span.start_time_unix_nano <= times[0][0]
    assert times[-1][1] <= root.span.end_time_unix_nano <= time.time_ns()
    assert not any(b"secret" in body for body in collector.raw), "nothing else is taken from the caller"
    (line,) = [
        json.loads(record.getMessage()) for record in caplog.records if "chat/completions" in record.getMessage()
    ]
    assert line["trace_id"] == TRACE


def _overload(tenant_id: str) -> pb.Load:
    """Return a report with a long queue of the tenant, or none if there is no tenant."""
    queues = [pb.TenantQueue(tenant_id=tenant_id, weight=1, seconds=100)] if tenant_id else []
    return pb.Load(request_seconds=1, active_weight=1, tenants=queues)


async def test_attribute_names_follow_opentelemetry() -> None:
    """They follow the conventions for generative AI; our own have another prefix."""
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = set()
    for module in (model_span, engine_spans):
        ours |= {word for word in inspect.getsource(module).split('"') if word.startswith("gen_ai.")}
    assert ours
    assert ours <= known


async def test_traces_over_grpc(traced: Gateway, collector: Collector) -> None:
    async with connected(traced.grpc_target, traced.key) as client:
        metadata = (*client.metadata, ("traceparent", SAMPLED))
        request = GenerateRequest(model=MODEL_ID, prompt="one two three", max_tokens=4)
        pieces = [piece async for piece in client.inference.GenerateStream(request, metadata=metadata)]
        assert pieces
        spans = await spans_of(collector, "loragate.v1.InferenceService/GenerateStream")
        root = spans["loragate.v1.InferenceService/GenerateStream"]
        assert root.parent == PARENT
        assert (
            root.attributes.items()
            >= {
                "rpc.system.name": "grpc",
                "rpc.method": root.name,
                "rpc.response.status_code": "OK",
                "loragate.tenant.id": traced.tenant_id,
            }.items()
        )
        call = spans[f"text_completion {MODEL_ID}"]
        assert (call.parent, spans["prefill"].parent) == (root.id, call.id)
        assert call.attributes["gen_ai.response.finish_reasons"] == ["length"]

        traced.engine.fails = lambda submit: True
        assert (await rejection(client.inference.Generate(request, metadata=client.metadata))).status
    spans = await spans_of(collector, "loragate.v1.InferenceService/Generate")
    root = spans["loragate.v1.InferenceService/Generate"]
    assert root.attributes["rpc.response.status_code"] == root.attributes["error.type"] == grpc.StatusCode.INTERNAL.name
    assert root.trace != TRACE, "no client's trace: one of our own"


async def test_ways_to_end(traced: Gateway, collector: Collector) -> None:
    """An error, a rejection, a client that disconnects: spans end, and record it in attributes of ours."""
    async with traced.http() as http:
        await http.get("/v1/nothing/here")
        unmatched = (await spans_of(collector, "GET"))["GET"]
        assert unmatched.attributes["http.response.status_code"] == 404
        assert "http.route" not in unmatched.attributes

        traced.engine.report_load(_overload(traced.tenant_id))
        while (await http.post("/v1/completions", json=TEXT)).status_code == 200:
            await asyncio.sleep(0.01)
        spans = await asyncio.to_thread(
            collector.until, lambda spans: any("error.type" in s.attributes for s in spans if s.name == "admission")
        )
        (shed, *_) = [span for span in spans if span.name == "admission" and "error.type" in span.attributes]
        assert shed.attributes["error.type"] == "Unavailable"
        assert not shed.span.events, "an exception's message may quote the client"
        traced.engine.report_load(_overload(""))
        while (await http.post("/v1/completions", json=TEXT)).status_code == 503:
            await asyncio.sleep(0.01)

        traced.engine.pause_after = 2
        async with http.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as stream:
            await traced.engine.paused.wait()
            await anext(stream.aiter_lines())
    left = f"text_completion {MODEL_ID}"
    spans = await asyncio.to_thread(
        collector.until, lambda spans: any(s.attributes.get("error.type") == "disconnected" for s in spans)
    )
    (call,) = [span for span in spans if span.name == left and "error.type" in span.attributes]
    assert call.attributes["loragate.outcome"] == "disconnected"
    assert {span.name for span in spans if span.parent == call.id} == {"queue", "prefill", "decode"}


async def test_several_prompts_and_embeddings(traced: Gateway, collector: Collector) -> None:
    async with traced.http() as http:
        await http.post("/v1/completions", json=TEXT | {"prompt": ["one", "two"], "n": 2})
        spans = await asyncio.to_thread(collector.until, lambda spans: any(s.name.startswith("POST") for s in spans))
        call = next(span for span in spans if span.name.startswith("text_completion"))
        assert sorted(s.name for s in spans if s.parent == call.id) == [
            "decode",
            "decode",
            "prefill",
            "prefill",
            *["queue"] * 2,
        ]
        assert call.attributes["gen_ai.request.choice.count"] == 2
        await http.post("/v1/embeddings", json={"model": MODEL_ID, "input": "one two"})
    spans_by_name = await spans_of(collector, "POST /v1/embeddings")
    call = spans_by_name[f"embeddings {MODEL_ID}"]
    assert call.attributes["gen_ai.operation.name"] == "embeddings"
    assert "gen_ai.request.max_tokens" not in call.attributes
    assert "decode" not in spans_by_name


async def test_stored_responses_are_in_no_span(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], collector: Collector
) -> None:
    stored = replace(config, tracing=TracingConfig(collector.endpoint), responses=ResponsesConfig(store=True))
    said = "the treasure is under the oak"
    async with serving(stored, engine, tenants) as running:
        await running.until_ready()
        client = running.openai()
        first = await client.responses.create(model=MODEL_ID, input=said, store=True, instructions=said, user=said)
        assert said in first.output_text, "the stub engine echoes the prompt"
        later = await client.responses.create(
            model=MODEL_ID, input=said, background=True, previous_response_id=first.id, metadata={"note": said}
        )
        while (await client.responses.retrieve(later.id)).status != "completed":
            await asyncio.sleep(0.02)
        talk = await client.conversations.create(items=[{"type": "message", "role": "user", "content": said}])
        await client.conversations.items.list(talk.id)
        await client.responses.delete(first.id)
        await spans_of(collector, "DELETE /v1/responses/{response_id}")
    assert len({span.trace for span in collector.spans}) >= 5
    assert not any(b"treasure" in body for body in collector.raw)


async def test_a_client_may_opt_out(traced: Gateway, collector: Collector) -> None:
    async with traced.http() as http:
        await http.post("/v1/completions", json=TEXT, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        assert not traced.engine.submits[-1].traceparent
        for malformed in ("", "00-zz-yy-01", SAMPLED.upper(), "00-" + "0" * 32 + f"-{PARENT}-01"):
            await http.post("/v1/completions", json=TEXT, headers={"traceparent": malformed})
            assert traced.engine.submits[-1].traceparent
    await spans_of(collector, "POST /v1/completions")
    assert TRACE not in {span.trace for span in collector.spans}


@pytest.mark.parametrize("ratio", [1.0, 0.0])
async def test_strangers_decide_nothing(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], collector: Collector, ratio: float
) -> None:
    """Not whether they are traced, and not in which trace; the spans link to theirs."""
    tracing = replace(config, tracing=TracingConfig(collector.endpoint, ratio))
    async with serving(tracing, engine, tenants) as running, running.http() as http:
        await running.until_ready()
        for flags in ("00", "01"):
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
            await http.post("/v1/completions", json=TEXT, headers=headers)
            assert bool(running.engine.submits[-1].traceparent) == bool(ratio)
            assert TRACE not in running.engine.submits[-1].traceparent
    roots = [span for span in collector.spans if span.name == "POST /v1/completions"]
    assert len(roots) == 2 * ratio
    assert len({span.trace for span in roots} | {TRACE}) == len(roots) + 1
    links = [(link.trace_id.hex(), link.span_id.hex()) for root in roots for link in root.span.links]
    assert links == [(TRACE, PARENT)] * len(roots)


async def test_the_last_spans_are_sent_when_the_process_ends(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    with otlp_collector() as collector:
        tracing = replace(config, tracing=TracingConfig(collector.endpoint))
        async with serving(tracing, engine, tenants) as running, running.http() as http:
            await running.until_ready()
            await http.post("/v1/completions", json=TEXT)
            assert not collector.spans
        assert "POST /v1/completions" in {span.name for span in collector.spans}


async def test_an_unreachable_collector_delays_nothing(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    tracing = replace(config, tracing=TracingConfig("http://127.0.0.1:9"))
    async with asyncio.timeout(20), serving(tracing, engine, tenants) as running, running.http() as http:
        await running.until_ready()
        for _ in range(5):
            assert (await http.post("/v1/completions", json=TEXT)).status_code == 200


async def test_without_tracing_the_engine_gets_no_trace_context(gateway: Gateway) -> None:
    async with gateway.http() as http:
        await http.post("/v1/completions", json=TEXT, headers={"traceparent": SAMPLED})
    assert not gateway.engine.submits[-1].traceparent
    assert step("anything") is step("another"), "no span, nothing made"


@pytest.mark.parametrize(
    ("endpoint", "ratio", "named"),
    [
        ("collector:4318", 1, "tracing.endpoint"),
        ("http://", 1, "tracing.endpoint"),
        ("http://collector:4318?x=1", 1, "tracing.endpoint"),
        ("http://collector:4318", 1.5, "tracing.sample_ratio"),
    ],
)
def test_settings_are_rejected_by_name(endpoint: str, ratio: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TracingConfig(endpoint, ratio)


def test_without_the_extra_the_setting_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.gateway.config.tracing._EXPORTER", "opentelemetry.no_such.exporter")
    with pytest.raises(ValueError, match=r"loragate\[tracing\]"):
        TracingConfig("http://collector:4318")
