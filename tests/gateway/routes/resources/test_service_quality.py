"""/v1/usage/service: a tenant's service quality."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.store import Store
from loragate.v1 import engine_pb2 as pb
from tests.gateway.metrics_page import samples_of, scrape_as_operator, value
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 3}


async def _served(gateway: Gateway, key: str | None = None) -> Any:
    async with gateway.http(key) as http:
        response = await http.get("/v1/usage/service")
    assert response.status_code == 200, response.text
    return response.json()


async def _until_reported(gateway: Gateway, **figures: int) -> Any:
    """Wait until this many responses and rejections are reported."""
    async with asyncio.timeout(60):
        while not ((served := await _served(gateway))["rejected"] | served).items() >= figures.items():
            await asyncio.sleep(0.02)
    return served


async def test_a_tenant_sees_its_latency_and_rejections(gateway: Gateway) -> None:
    nothing = {"requests": 0, "errors": 0, "ttft_ms": None, "rejected": {"rate_limited": 0, "overloaded": 0}}
    assert (await _served(gateway)).items() >= nothing.items()
    statuses: Counter[int] = Counter()
    async with gateway.http() as http, gateway.admin() as admin, asyncio.timeout(60):
        queue = pb.TenantQueue(tenant_id=gateway.tenant_id, weight=1.0, seconds=30.0)
        gateway.engine.report_load(pb.Load(request_seconds=0.5, active_weight=1.0, tenants=[queue]))
        while statuses[503] < 3:
            statuses[(await http.post("/v1/completions", json=TEXT)).status_code] += 1
        gateway.engine.report_load(pb.Load())
        while (status := (await http.post("/v1/completions", json=TEXT)).status_code) == 503:
            statuses[status] += 1
        statuses[status] += 1
        limits = {"limits": {"requests_per_minute": 0}}
        assert (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json=limits)).is_success
        while (status := (await http.post("/v1/completions", json=TEXT)).status_code) == 200:
            statuses[status] += 1
        statuses[status] += 1
    assert statuses.keys() == {200, 429, 503}
    served = await _until_reported(
        gateway, requests=statuses[200], errors=0, rate_limited=statuses[429], overloaded=statuses[503]
    )
    first = served["ttft_ms"]
    assert 0 <= first["p50"] <= first["p90"] <= first["p95"] <= first["p99"]
    assert (await _served(gateway, gateway.other_key)).items() >= nothing.items()


async def test_rejections_by_the_engine_are_not_errors(gateway: Gateway) -> None:
    """The engine had reported room, but more requests came at once."""
    gateway.engine.fails = lambda submit: True
    async with gateway.http() as http:
        for own, stream, status in ((False, False, 503), (False, True, 503), (True, False, 429)):
            gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_OVERLOADED, message="full", own_queue=own)
            assert (await http.post("/v1/completions", json=TEXT | {"stream": stream})).status_code == status
    served = await _until_reported(gateway, overloaded=3)
    assert (served["requests"], served["errors"]) == (0, 0)
    samples = samples_of(await scrape_as_operator(gateway))
    tenant = {"tenant": gateway.tenant_id}
    assert value(samples, "loragate_tenant_requests_total", outcome="shed", **tenant) == 3
    assert value(samples, "loragate_tenant_shed_requests_total", **tenant) == 3
    assert value(samples, "loragate_gateway_engine_rejections_total", status="503") == 2
    assert value(samples, "loragate_gateway_engine_rejections_total", status="429") == 1


async def test_failed_writes_are_repeated_later(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway.services is not None
    rejections = gateway.services.admission.rejections
    async with gateway.http() as http, gateway.admin() as admin:
        limits = {"limits": {"requests_per_minute": 0}}
        assert (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json=limits)).is_success
        with monkeypatch.context() as away:
            away.setattr(Store, "admin", _unavailable)
            async with asyncio.timeout(60):
                while (await http.post("/v1/completions", json=TEXT)).status_code == 200:
                    pass
            await rejections.write()
    await _until_reported(gateway, rate_limited=1)


def _unavailable(*_: Any, **__: Any) -> Any:
    raise Unavailable("The database is away.")


async def test_the_period_is_bounded(gateway: Gateway) -> None:
    async with gateway.http() as http:
        assert (await http.get("/v1/usage/service", params={"hours": 168})).status_code == 200
        for bad in ("0", "169", "x"):
            caught = await http.get("/v1/usage/service", params={"hours": bad})
            assert (caught.status_code, caught.json()["error"]["param"]) == (400, "hours")
