"""/metrics: its values, who can read which, and its behaviour without an engine."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loragate.adapter_store.training.objects import Outcome
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.metrics import SHARED_DIRECTORY
from loragate.gateway.instruments.tenant_counter import TenantCounter
from loragate.gateway.metering.request_metrics import AliasTargetMetrics
from loragate.gateway.observability.finetune_families import FOLDER, finetune_families
from loragate.gateway.routes import metrics as metrics_route
from loragate.trainer.worker.metrics import TrainerMetrics
from loragate.v1 import engine_pb2 as pb
from tests.gateway.engine_stats import full_stats
from tests.gateway.grpc_client import Client
from tests.gateway.metrics_page import page_after_traffic, samples_of, scrape_as_operator, value
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.usage_records import A_RECORD

DOCUMENT = Path(__file__).parents[3] / "docs/observability.md"


async def scrape(gateway: Gateway, key: str | None = None) -> str:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers, timeout=30) as http:
        response = await http.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return response.text


async def test_requests_are_counted_by_template_method_and_status(gateway: Gateway) -> None:
    before = samples_of(await scrape_as_operator(gateway))
    async with gateway.http() as http:
        for _ in range(3):
            await http.get("/v1/models")
        await http.get("/v1/adapters/none-of-this-name")
        await http.get("/v1/no/such/path")
        await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "hello", "max_tokens": 2})
        await http.request("BREW", "/v1/models")
    async with gateway.http("lg-wrong-key") as unauthenticated:
        await unauthenticated.get("/v1/models")
    after = samples_of(await scrape_as_operator(gateway))

    def counted(method: str, route: str, status: str) -> float:
        labels = {"method": method, "route": route, "status": status}
        key = ("loragate_http_requests_total", frozenset(labels.items()))
        return after[key] - before.get(key, 0)

    assert counted("GET", "/v1/models", "200") == 3
    assert counted("GET", "/v1/models", "401") == 1
    assert counted("GET", "/v1/adapters/{name}", "404") == 1
    assert counted("GET", "unmatched", "404") == 1
    assert counted("POST", "/v1/completions", "200") == 1
    assert counted("GET", "/metrics", "200") == 1
    assert not any("none-of-this-name" in str(key) or "BREW" in str(key) for key in after)
    assert value(after, "loragate_http_requests_in_flight") == 1, "the scrape itself"
    assert value(after, "loragate_http_request_duration_seconds_count", route="/v1/completions") == 1
    assert value(after, "loragate_http_request_duration_seconds_sum", route="/v1/completions") > 0


async def test_a_stream_is_in_flight_until_its_end(gateway: Gateway) -> None:
    gateway.engine.pause_after = 1
    body = {"model": MODEL_ID, "prompt": "one two three", "stream": True, "max_tokens": 3}
    async with gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=body):
            await gateway.engine.paused.wait()
            assert value(samples_of(await scrape(gateway)), "loragate_http_requests_in_flight") == 2
        await asyncio.wait_for(gateway.engine.aborted.get(), 10)
    while value(samples_of(await scrape(gateway)), "loragate_http_requests_in_flight") != 1:
        await asyncio.sleep(0.01)


async def test_the_engines_statistics(gateway: Gateway) -> None:
    stats = gateway.engine.stats = full_stats()
    samples = samples_of(await scrape_as_operator(gateway))
    for name, field in (
        ("loragate_engine_requests_total", "requests"),
        ("loragate_engine_prompt_tokens_total", "prompt_tokens"),
        ("loragate_engine_generation_tokens_total", "generated_tokens"),
        ("loragate_engine_shed_total", "shed"),
        ("loragate_engine_num_preemptions_total", "preemptions"),
        ("loragate_engine_waiting_for_adapter", "waiting_for_adapter"),
        ("loragate_engine_backlog_seconds", "backlog_seconds"),
        ("loragate_engine_kv_blocks_used", "kv_blocks_used"),
        ("loragate_engine_kv_blocks_capacity", "kv_blocks_total"),
        ("loragate_engine_start_time_seconds", "started_at"),
    ):
        assert value(samples, name) == getattr(stats, field), name
    assert value(samples, "loragate_engine_up") == 1
    assert value(samples, "loragate_engine_completions_total", finish="abort") == stats.aborted
    assert value(samples, "loragate_engine_failures_total", code="internal") == 3
    assert value(samples, "loragate_engine_failures_total", code="non_finite") == 0
    assert value(samples, "loragate_engine_adapter_limit_bytes", tier="host") == 20
    assert value(samples, "loragate_engine_prefix_cache_hits_total", tier="device") == 20
    buckets = {le: value(samples, "loragate_engine_step_seconds_bucket", le=le) for le in ("0.5", "2.0", "+Inf")}
    assert buckets == {"0.5": 4, "2.0": 6, "+Inf": 7}
    assert value(samples, "loragate_engine_step_seconds_count") == 7
    assert value(samples, "loragate_engine_step_seconds_sum") == 9.25


async def test_no_field_of_the_engine_is_omitted(gateway: Gateway) -> None:
    """Each scalar that the engine sends is in the text, so that a new one cannot be forgotten."""
    stats = gateway.engine.stats = full_stats()
    reported = set(samples_of(await scrape_as_operator(gateway)).values())
    for field, number in stats.ListFields():
        if isinstance(number, int) and not isinstance(number, bool):
            assert number in reported, field.name


async def test_an_engine_that_is_down(gateway: Gateway) -> None:
    await gateway.engine.kill()
    while 'loragate_engine_up{engine="engine-0"} 0.0' not in (text := await scrape(gateway)):
        await asyncio.sleep(0.02)
    names = {name for name, _ in samples_of(text)}
    assert "loragate_http_requests_total" in names
    assert [name for name in names if name.startswith(("loragate_engine", "vllm"))] == ["loragate_engine_up"]


async def test_a_hanging_engine_does_not_delay_the_scrape(gateway: Gateway) -> None:
    gateway.engine.hanging = True
    async with asyncio.timeout(20):
        assert 'loragate_engine_up{engine="engine-0"} 0.0' in await scrape_as_operator(gateway)


async def test_many_scrapes_send_few_requests_to_the_engine(gateway: Gateway) -> None:
    before, began = len(gateway.engine.stats_asked), time.monotonic()
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        answers = await asyncio.gather(*(http.get("/metrics") for _ in range(40)))
    assert all('loragate_engine_up{engine="engine-0"} 1.0' in answer.text for answer in answers)
    asked = gateway.engine.stats_asked[before:]
    assert 1 <= len(asked) <= 2 + 2 * (time.monotonic() - began)
    assert not any(request.adapter_rows or request.tenants for request in asked), "only the operator gets these"


async def test_scrapes_without_a_key_share_a_page(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[None] = []
    really = metrics_route.exposition
    monkeypatch.setattr(metrics_route, "exposition", lambda families: (built.append(None), really(families))[1])
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        answers = await asyncio.gather(*(http.get("/metrics") for _ in range(40)))
        assert len({answer.content for answer in answers}) == len(built) <= 1 + (time.monotonic() - began)
        while len(built) < 2:
            await http.get("/metrics")
    assert time.monotonic() - began >= 0.9
    operators = [await scrape_as_operator(gateway) for _ in range(2)]
    assert operators[0] != operators[1], "theirs are current"


async def test_names_are_for_the_operator(
    gateway: Gateway, upload: Callable[..., Awaitable[dict[str, Any]]], tmp_path: Path
) -> None:
    adapters = [await upload(name, seed=seed) for seed, name in enumerate(("support", "sales"))]
    refs = [pb.AdapterRef(tenant_id=gateway.tenant_id, digest=adapter["digest"]) for adapter in adapters]
    unknown = pb.AdapterRef(tenant_id=gateway.tenant_id, digest="sha256:" + "0" * 64)
    gateway.engine.stats = full_stats(*refs, unknown)
    ids = [f"ad_{number:016x}" for number in range(3)]

    for key in (None, gateway.key, gateway.other_key):
        while f'max_lora="{gateway.engine.stats.slots_total}"' not in (text := await scrape(gateway, key)):
            await asyncio.sleep(0.05)  # the page from before the change is a second old
        samples = samples_of(text)
        (labels,) = [dict(labels) for name, labels in samples if name == "vllm:lora_requests_info"]
        assert labels == {
            "max_lora": str(gateway.engine.stats.slots_total),
            "running_lora_adapters": "",
            "waiting_lora_adapters": "",
        }
        families = ("loragate_adapter", "loragate_tenant", "loragate_alias", "ad_0", "vllm:lora_adapter_loaded")
        for secret in ("support", "sales", gateway.tenant_id, "sha256", *families):
            assert secret not in text

    samples = samples_of(await scrape_as_operator(gateway))
    ((labels, moment),) = [(dict(key[1]), v) for key, v in samples.items() if key[0] == "vllm:lora_requests_info"]
    assert (labels["running_lora_adapters"], labels["waiting_lora_adapters"]) == ("support", f"sales,{ids[2]}")
    assert abs(moment - time.time()) < 60
    first = {"id": ids[0], "tenant": gateway.tenant_id, "adapter": "support:1"}
    assert value(samples, "loragate_adapter_requests_total", **first) == 4
    assert value(samples, "loragate_adapter_request_queue_time_seconds_total", **first) == 1.0
    assert value(samples, "loragate_adapter_requests_total", id="base", tenant="", adapter="") == 1
    assert value(samples, "loragate_tenant_prefix_cache_hits_total", tenant="tn_x", tier="host") == 5


async def test_idle_residents_are_listed(
    gateway: Gateway, upload: Callable[..., Awaitable[dict[str, Any]]], tmp_path: Path
) -> None:
    adapters = [await upload(name, seed=seed) for seed, name in enumerate(("support", "sales", "legal", "legal"))]
    refs = [pb.AdapterRef(tenant_id=gateway.tenant_id, digest=adapter["digest"]) for adapter in adapters]
    stats = pb.StatsResponse(slots_total=6, kv_blocks_used=3, kv_blocks_total=12, running=5, waiting=7)
    for number, ref in enumerate(refs[:2]):
        stats.residents.append(pb.Resident(adapter=ref, id=f"ad_{number}", pinned=number == 0, rank=8))
    for number, (ref, tier) in enumerate(zip(refs[1:], (pb.TIER_HOST, pb.TIER_DISK, pb.TIER_DISK), strict=True), 2):
        stats.cached.append(pb.CachedAdapter(adapter=ref, id=f"ad_{number}", tier=tier, rank=16 * (number == 2)))
    gateway.engine.stats = stats

    def loaded(samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> dict[tuple[str, ...], float]:
        names = ("adapter_name", "level", "pinned", "rank")
        return {
            tuple(dict(labels).get(each, "") for each in names): number
            for (name, labels), number in samples.items()
            if name == "vllm:lora_adapter_loaded"
        }

    while 'max_lora="6"' not in (text := await scrape(gateway)):
        await asyncio.sleep(0.05)
    samples = samples_of(text)
    assert loaded(samples) == {}, "not even ids, which reveal when an adapter is in use"
    for name, number in (
        ("vllm:max_gpu_lora_adapters", 6),
        ("vllm:num_requests_running", 5),
        ("vllm:num_requests_waiting", 7),
        ("vllm:kv_cache_usage_perc", 0.25),
    ):
        assert value(samples, name) == number
    assert value(samples, "vllm:num_gpu_loaded_lora_adapters", model_name="") == 2

    samples = samples_of(await scrape_as_operator(gateway))
    assert loaded(samples) == {
        ("support", "gpu", "true", "8"): 1,
        ("sales", "gpu", "false", "8"): 1,
        ("sales", "cpu", "false", "16"): 1,
        ("legal", "disk", "false", ""): 1,
    }, "versions of one name are one series"
    assert value(samples, "vllm:num_gpu_loaded_lora_adapters", model_name=MODEL_ID) == 2


async def test_without_a_kv_cache_its_usage_is_zero(gateway: Gateway) -> None:
    gateway.engine.stats = pb.StatsResponse(started_at=1.0)
    assert value(samples_of(await scrape_as_operator(gateway)), "vllm:kv_cache_usage_perc") == 0


async def test_a_wrong_key_is_rejected(gateway: Gateway) -> None:
    async with gateway.http("lg-wrong-key") as http:
        assert (await http.get("/metrics")).status_code == 401


async def test_metrics_are_served_while_draining(gateway: Gateway) -> None:
    gateway.lifecycle.begin_drain()
    assert "loragate_http_requests_total" in await scrape(gateway)


async def test_the_event_loop_is_measured(gateway: Gateway) -> None:
    async with asyncio.timeout(30):
        while value(samples_of(await scrape(gateway)), "loragate_gateway_event_loop_lag_seconds_count") < 1:
            await asyncio.sleep(0.05)


async def test_tenant_metrics_are_for_the_operator(gateway: Gateway, client: Client) -> None:
    samples = samples_of(await page_after_traffic(gateway, client))
    tenant = {"tenant": gateway.tenant_id}
    assert value(samples, "loragate_tenant_requests_total", outcome="completed", **tenant) == 2
    assert value(samples, "loragate_tenant_requests_total", outcome="failed", **tenant) == 1
    assert value(samples, "loragate_tenant_completion_tokens_total", **tenant) == 4
    assert value(samples, "loragate_tenant_prompt_tokens_total", **tenant) > 0
    assert value(samples, "loragate_tenant_shed_requests_total", **tenant) == 1
    assert value(samples, "loragate_gateway_shed_requests_total") == 1
    rejected, *_ = [dict(labels) for name, labels in samples if name == "loragate_tenant_rejected_requests_total"]
    assert rejected["kind"] == "size"
    assert rejected["tenant"] != gateway.tenant_id
    assert value(samples, "loragate_gateway_time_to_first_token_seconds_count") >= 3
    assert value(samples, "loragate_gateway_time_per_output_token_seconds_count") >= 3
    for key in (None, gateway.key):
        text = await scrape(gateway, key)
        assert "loragate_tenant_" not in text
        assert "loragate_alias_target_" not in text


async def test_the_targets_of_an_alias_are_distinguished(gateway: Gateway, upload_to: Any) -> None:
    for seed in (1, 2):
        await upload_to(gateway, "poet", seed=seed)
    async with gateway.http() as http:
        for model in ("poet", "poet@default", "poet:1"):
            await http.post("/v1/completions", json={"model": model, "prompt": "xyz", "max_tokens": 2})
    async with asyncio.timeout(30):
        while "poet:2" not in (page := await scrape_as_operator(gateway)):
            await asyncio.sleep(0.05)
    samples = samples_of(page)
    target = {"tenant": gateway.tenant_id, "adapter": "poet:2", "alias": "default"}
    assert value(samples, "loragate_alias_target_requests_total", outcome="completed", **target) == 2
    assert value(samples, "loragate_alias_target_prompt_tokens_total", **target) == 6
    assert value(samples, "loragate_alias_target_completion_tokens_total", **target) == 4
    assert value(samples, "loragate_alias_target_answered_requests_total", **target) == 2
    assert value(samples, "loragate_alias_target_time_to_first_token_seconds_total", **target) > 0
    assert not [
        labels for name, labels in samples if name.startswith("loragate_alias_target") and "poet:1" in str(labels)
    ]


def test_alias_targets_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.gateway.metering.request_metrics.MAX_TARGETS", 2)
    registry = CollectorRegistry()
    targets = AliasTargetMetrics(registry)
    for version in (1, 2, 3, 4, 1):
        targets.ended(replace(A_RECORD, adapter="poet", adapter_version=version, adapter_alias="default"))
    counted = {
        dict(labels)["adapter"]: number
        for (name, labels), number in samples_of(generate_latest(registry).decode()).items()
        if name == "loragate_alias_target_requests_total"
    }
    assert counted == {"poet:1": 2, "poet:2": 1, "other": 2}


def test_tenants_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.gateway.instruments.tenant_counter.MAX_TENANTS", 2)
    registry = CollectorRegistry()
    counter = TenantCounter("things", "Things.", registry, "kind")
    for tenant in ("a", "b", "c", "d", "a", "c"):
        counter.inc(tenant, "x", by=2)
    counter.inc("a", "y")
    samples = samples_of(generate_latest(registry).decode())
    assert {(dict(labels)["tenant"], dict(labels)["kind"]): number for (_, labels), number in samples.items()} == {
        ("a", "x"): 4,
        ("b", "x"): 2,
        ("other", "x"): 6,
        ("a", "y"): 1,
    }


# names and documents


@pytest.fixture
async def families(gateway: Gateway, client: Client) -> list[Metric]:
    """Return the metric families of the gateway, and those that it forwards from a fine-tune worker and a trainer."""
    worker = FinetuneMetrics()
    worker.record_end("finished")
    trainer = TrainerMetrics()
    trainer.record_outcomes([Outcome.done(b"")])
    own = [generate_latest(each.registry).decode() for each in (worker, trainer)]
    pages = await page_after_traffic(gateway, client), *own
    return [family for page in pages for family in text_string_to_metric_families(page)]


async def test_names_follow_prometheus_conventions(families: list[Metric]) -> None:
    assert len(families) > 40
    for family in families:
        assert family.documentation, family.name
        parts = "http|grpc|gateway|engine|adapter|tenant|alias_target|usage|limits|finetune|trainer|responses"
        assert re.fullmatch(rf"(loragate_({parts})_|vllm:)[a-z0-9_]+", family.name), family.name
        assert not re.search(r"_(ms|millis|milliseconds|minutes|kb|mb)(_|$)", family.name), "base units"
        if family.type == "counter":
            assert {sample.name for sample in family.samples} == {f"{family.name}_total"}
        else:
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        if family.type == "histogram":
            assert {s.name.removeprefix(family.name) for s in family.samples} == {"_bucket", "_count", "_sum"}
        for sample in family.samples:
            assert all(re.fullmatch("[a-z_]+", label) for label in sample.labels)


async def test_the_document_lists_exactly_the_existing_metrics(families: list[Metric]) -> None:
    rows = re.findall(r"^\| `([a-z0-9_:]+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}
    found = {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, _labels(family.samples))
        for family in families
    }
    assert documented == found


async def test_the_documents_queries_use_existing_metrics(families: list[Metric]) -> None:
    exist = {sample.name for family in families for sample in family.samples}
    asked = set(
        re.findall(
            r"(?:loragate_(?:http|grpc|gateway|engine|adapter|tenant|alias_target|usage|limits|finetune|trainer)_|vllm:)[a-z0-9_]+",
            DOCUMENT.read_text(),
        )
    )
    histograms = {family.name for family in families if family.type == "histogram"}
    assert asked - histograms - exist == set()


def _labels(samples: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted({label for sample in samples for label in sample.labels} - {"le"}))


# several workers

WORKER = """
import json, sys
from loragate.gateway.observability.exposition import exposition
from loragate.gateway.http.metrics import HttpMetrics

metrics = HttpMetrics()
for status in json.loads(sys.argv[1]):
    metrics.completed("GET", "/v1/models", status, 0.5)
with metrics.in_flight():
    if sys.argv[2] == "wait":
        print("there", flush=True)
        sys.stdin.read()
    if sys.argv[2] == "scrape":
        print(exposition(metrics.families()).decode(), flush=True)
    if sys.argv[2] == "die":
        import os
        os._exit(1)
"""


def test_a_scrape_of_one_worker_covers_all(tmp_path: Path) -> None:
    environment = os.environ | {SHARED_DIRECTORY: str(tmp_path)}

    def command(statuses: list[int], how: str) -> list[str]:
        return [sys.executable, "-c", WORKER, json.dumps(statuses), how]

    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command([200, 200, 503], "wait"), env=environment, **pipes) as living:
        assert living.stdout is not None
        assert living.stdout.readline() == b"there\n"
        subprocess.run(command([200], "die"), env=environment, check=False)
        scraped = subprocess.run(command([404], "scrape"), env=environment, check=True, capture_output=True, text=True)
        living.communicate()
    samples = samples_of(scraped.stdout)
    by_status = {
        dict(labels)["status"]: count for (name, labels), count in samples.items() if name.endswith("requests_total")
    }
    assert by_status == {"200": 3, "503": 1, "404": 1}, "the dead worker's requests were answered all the same"
    assert value(samples, "loragate_http_request_duration_seconds_count", route="/v1/models") == 5
    assert value(samples, "loragate_http_request_duration_seconds_sum", route="/v1/models") == 2.5
    assert value(samples, "loragate_http_requests_in_flight") == 2, "what the dead one had in flight is gone"
    assert not any("pid" in dict(labels) for _, labels in samples)


async def test_several_workers_report_the_engines_statistics_once(
    config: Any, engine: Any, tenants: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.gateway.running_gateway import serving

    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(SHARED_DIRECTORY, str(shared))
    engine.stats = full_stats()
    async with serving(config, engine, tenants) as one, serving(config, engine, tenants) as other:
        for gateway in (one, other):
            await gateway.until_ready()
            samples = samples_of(await scrape(gateway))
            assert value(samples, "loragate_engine_requests_total") == engine.stats.requests
    assert isinstance(one.lifecycle, Lifecycle)


FINETUNE_WORKER = """
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.training.protocol.messages import Metrics
metrics = FinetuneMetrics()
metrics.record_step(Metrics(step=3, steps=9, epoch=0.5, train_loss=1.5))
metrics.record_end("finished")
"""


def test_the_loss_of_a_tenants_job_is_for_the_operator(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    environment = os.environ | {SHARED_DIRECTORY: str(folder)}
    subprocess.run([sys.executable, "-c", FINETUNE_WORKER], env=environment, check=True)
    whole, public = ({each.name for each in finetune_families(tmp_path, all_of_them=all_)} for all_ in (True, False))
    assert {"loragate_finetune_train_loss", "loragate_finetune_step", "loragate_finetune_jobs"} <= whole
    of_the_job = {"step", "total_steps", "train_loss", "valid_loss", "learning_rate", "gradient_norm"}
    assert not public & {f"loragate_finetune_{name}" for name in of_the_job}
    assert "loragate_finetune_jobs" in public
