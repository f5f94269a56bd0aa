"""What an operator sees of a real server: metrics that agree with the requests, and a trace of them."""

import json
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from running_server import ADMIN_KEY, ok
from typer.testing import CliRunner

from loragate.cli.main import app

PROMPT = [5, 9, 13, 21, 200, 7]


def scraped(http: httpx.Client) -> dict[str, float]:
    """Return the sums over all labels, by name."""
    text = http.get("/metrics").raise_for_status().text
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def settled(admin: httpx.Client) -> dict[str, float]:
    """Return them once the last step is over."""
    while True:
        numbers = scraped(admin)
        if numbers["loragate_engine_step_seconds_count"] == numbers["loragate_engine_steps_total"]:
            return numbers


def test_metrics_agree_with_the_requests(tenants: Any) -> None:
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    with tenants.server.admin() as admin:
        before = settled(admin)
        for model in ("a", "b", "a"):
            ok(tenants.acme.post("/v1/completions", json={"model": model} | body))
        ok(tenants.globex.post("/v1/completions", json={"model": "d", "n": 2} | body))
        after = settled(admin)
        engine = ok(admin.get("/admin/v1/engines"))["data"][0]
        rows = ok(admin.get("/admin/v1/engines/engine-0/adapters"))["data"]
    gained = {name: after[name] - before.get(name, 0) for name in after}
    for name, expected in (
        ("loragate_engine_requests_total", 4),
        ("loragate_engine_prompt_tokens_total", 4 * len(PROMPT)),
        ("loragate_engine_generation_tokens_total", 5 * 6),
        ("loragate_engine_completions_total", 5),
        ("loragate_engine_request_queue_time_seconds_count", 5),
        ("loragate_engine_time_to_first_token_seconds_count", 5),
        ("loragate_engine_inter_token_latency_seconds_count", 5 * 5),
        ("loragate_engine_failures_total", 0),
        ("loragate_adapter_requests_total", 4),
        ("loragate_adapter_generation_tokens_total", 5 * 6),
    ):
        assert gained[name] == expected, name
    assert after["loragate_engine_up"] == 1
    assert engine["state"] == "ready"
    assert engine["adapter_slots"]["total"] == 2
    residents = {version["name"] for each in engine["residents"] for version in each["versions"]}
    assert "d" in residents
    assert {row["id"] for row in engine["residents"]} <= {row["id"] for row in rows}
    assert {version["name"] for row in rows for version in row["versions"]} >= {"a", "b", "d"}


def test_unauthenticated_metrics_name_no_tenant(tenants: Any) -> None:
    with httpx.Client(base_url=tenants.server.base_url, timeout=60) as unauthenticated, tenants.server.admin() as admin:
        text = unauthenticated.get("/metrics").raise_for_status().text
        listed = ok(admin.get("/admin/v1/tenants"))["data"]
    assert "vllm:lora_requests_info{" in text
    assert "loragate_adapter" not in text
    for tenant in listed:
        assert tenant["id"] not in text


def test_the_command_writes_a_trace(tenants: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    options = ["--base-url", tenants.server.base_url, "--admin-key", ADMIN_KEY, "--data-dir", str(tmp_path)]
    ok(tenants.acme.post("/v1/completions", json={"model": "a", "prompt": PROMPT, "max_tokens": 2}))
    result = CliRunner().invoke(app, ["engine-trace", str(file), "--steps", "2", *options])
    assert result.exit_code == 0, result.output
    events = json.loads(file.read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X" and "args" in e][-1] in ("prefill", "decode")
    assert sum(e["ph"] == "C" and e["name"] == "batch" for e in events) == 2
