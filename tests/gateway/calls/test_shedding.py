"""Requests are shed cheaply while the engine is overloaded."""

import asyncio
from typing import Any

import grpc
import pytest
from openai import APIStatusError
from prometheus_client import CollectorRegistry

from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.gateway.calls.shedding import Shedding, SheddingMetrics
from loragate.gateway.errors import Unavailable
from loragate.v1 import engine_pb2 as pb
from loragate.v1.inference_pb2 import ChatMessage, ChatRequest, GenerateRequest
from tests.gateway.grpc_client import Client, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 3}
BOUND = 10.0


def caller(tenant_id: str, weight: float = 1.0) -> TenantPrincipal:
    return TenantPrincipal(tenant_id, tenant_id, weight, "key", frozenset({Scope.ALL}))


def load(active_weight: float, request_seconds: float = 0.1, **seconds: tuple[float, float]) -> pb.Load:
    """Return the load report for `seconds` of work by tenant, with its weight."""
    queues = [pb.TenantQueue(tenant_id=name, weight=weight, seconds=s) for name, (weight, s) in seconds.items()]
    return pb.Load(request_seconds=request_seconds, active_weight=active_weight, tenants=queues)


class SheddingWithLoad:
    """A shedding policy with the engine load that the test sets."""

    def __init__(self) -> None:
        self.load: pb.Load | None = None
        self.shedding = Shedding(lambda: self.load, BOUND, SheddingMetrics(CollectorRegistry()))

    def admits(self, tenant_id: str, weight: float = 1.0) -> bool:
        try:
            self.shedding.check(caller(tenant_id, weight))
        except Unavailable:
            return False
        return True

    def retry_after(self, tenant_id: str) -> float:
        with pytest.raises(Unavailable) as rejected:
            self.shedding.check(caller(tenant_id))
        return rejected.value.retry_after


def test_without_a_queue_nothing_is_shed() -> None:
    reported = SheddingWithLoad()
    assert all(reported.admits("any") for _ in range(1000))


def test_a_flood_sheds_only_its_own_tenant() -> None:
    reported = SheddingWithLoad()
    reported.load = load(2.0, flood=(1.0, 30.0))
    assert not reported.admits("flood")
    assert reported.admits("another")


def test_if_all_tenants_wait_the_lowest_weight_is_shed_first() -> None:
    """Two free tenants and one that pays, with equal amounts of work."""
    reported = SheddingWithLoad()
    reported.load = load(6.0, one=(1.0, 4.0), two=(1.0, 4.0), paying=(4.0, 4.0))
    assert (reported.admits("one"), reported.admits("two"), reported.admits("paying", 4.0)) == (False, False, True)
    reported.load = load(6.0, one=(1.0, 8.0), two=(1.0, 8.0), paying=(4.0, 8.0))
    assert not reported.admits("paying", 4.0), "there is a load that is too much for anybody"


def test_new_tenants_wait_behind_those_that_are_queued() -> None:
    """A hundred tenants have a request each: a new free tenant comes after about all of them."""
    reported = SheddingWithLoad()
    reported.load = load(101.0, 0.2, **{f"tenant{i}": (1.0, 0.2) for i in range(101)})
    assert not reported.admits("free")
    assert reported.admits("paying", 10.0)


def test_requests_sent_since_the_last_report_count() -> None:
    reported = SheddingWithLoad()
    reported.load = load(1.0, 0.1, flood=(1.0, 9.0))
    admitted = sum(reported.admits("flood") for _ in range(1000))
    assert admitted == 10
    reported.load = load(1.0, 0.1, flood=(1.0, 7.0))
    assert reported.admits("flood")


def test_shedding_has_hysteresis() -> None:
    """A tenant that was shed is admitted again only when a quarter of the bound is free."""
    reported = SheddingWithLoad()
    seen = []
    for seconds in (9.0, 10.5, 9.5, 8.0, 9.9, 7.0, 8.0, 9.5):
        reported.load = load(1.0, 0.1, flood=(1.0, seconds))
        seen.append(reported.admits("flood"))
    assert seen == [True, False, False, False, False, True, True, True]


def test_the_retry_time_is_when_there_is_room_again() -> None:
    """In steps, because what others do decides it."""
    reported = SheddingWithLoad()
    for seconds, retry_after in ((20.0, 20), (20.1, 20), (27.0, 20), (27.1, 30), (4000.0, 60), (10.0, 5)):
        reported.load = load(1.0, 0.5, flood=(1.0, seconds))
        assert reported.retry_after("flood") == retry_after, seconds
        with pytest.raises(Unavailable, match=f"at the moment. Please try again in {retry_after} s.$"):
            reported.shedding.check(caller("flood"))


def test_an_idle_engine_resets_the_shed_tenants() -> None:
    reported = SheddingWithLoad()
    reported.load = load(1.0, 0.1, flood=(1.0, 20.0))
    assert not reported.admits("flood")
    reported.load = None
    assert reported.admits("flood")
    reported.load = load(1.0, 0.1, flood=(1.0, 9.0))
    assert reported.admits("flood")


async def _overload(gateway: Gateway) -> None:
    """Make the first tenant's queue too long."""
    gateway.engine.report_load(load(2.0, 0.5, **{gateway.tenant_id: (1.0, 30.0)}))
    async with gateway.http() as http:
        while (await http.post("/v1/completions", json=TEXT)).status_code == 200:
            await asyncio.sleep(0.01)


async def _shed(gateway: Gateway) -> float:
    async with gateway.admin() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith("loragate_gateway_shed_requests_total")]
    return float(value)


async def test_shedding_over_rest_and_grpc(gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await _overload(gateway)
    counted, submitted = await _shed(gateway), len(gateway.engine.submits)
    records: list[Any] = []
    monkeypatch.setattr(
        "loragate.gateway.metering.ledger.Ledger.record", lambda self, record, slot: records.append(record)
    )
    chat = {"model": MODEL_ID, "messages": [{"role": "user", "content": "A question"}]}
    bodies = [
        ("/v1/completions", TEXT),
        ("/v1/completions", TEXT | {"stream": True}),
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", chat | {"stream": True}),
        ("/v1/embeddings", {"model": MODEL_ID, "input": "one two"}),
    ]
    async with gateway.http() as http:
        for path, body in bodies:
            rejected = await http.post(path, json=body)
            assert rejected.status_code == 503, path
            error = rejected.json()["error"]
            assert (error["type"], error["code"], error["param"]) == ("server_error", "overloaded", None)
            assert 0 < int(rejected.headers["retry-after-ms"]) <= 1000 * int(rejected.headers["retry-after"])
            assert "x-ratelimit-remaining-requests" not in rejected.headers
    with pytest.raises(APIStatusError) as raised:
        await gateway.openai().completions.create(**TEXT)  # type: ignore[call-overload]
    assert raised.value.status_code == 503

    message = ChatMessage(role="user", content="A question")
    for call in (
        client.inference.Generate(GenerateRequest(model=MODEL_ID, prompt="one"), metadata=client.metadata),
        client.inference.Chat(ChatRequest(model=MODEL_ID, messages=[message]), metadata=client.metadata),
        anext(
            aiter(
                client.inference.GenerateStream(GenerateRequest(model=MODEL_ID, prompt="one"), metadata=client.metadata)
            )
        ),
    ):
        reported = await rejection(call)
        assert (reported.status, reported.code) == (grpc.StatusCode.UNAVAILABLE, "overloaded")
        assert reported.retry_seconds

    assert not records, "rejected requests are not metered"
    assert len(gateway.engine.submits) == submitted
    assert await _shed(gateway) == counted + len(bodies) + 1 + 3


async def test_shed_requests_use_no_limits_and_others_continue(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        limits = {"requests_per_minute": 5, "tokens_per_minute": 1000}
        (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})).raise_for_status()
    await _overload(gateway)
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        for _ in range(20):
            assert (await http.post("/v1/completions", json=TEXT)).status_code == 503
        assert (await other.post("/v1/completions", json=TEXT)).status_code == 200
        gateway.engine.report_load(pb.Load())
        while (answer := await http.post("/v1/completions", json=TEXT)).status_code == 503:
            await asyncio.sleep(0.01)
    assert answer.status_code == 200, "it ends by itself, and nothing was used up meanwhile"


async def test_a_tenants_weight_is_its_priority(gateway: Gateway) -> None:
    """The queue is the same, at four times the share."""
    async with gateway.admin() as admin:
        (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"weight": 4})).raise_for_status()
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        other_id = (await _tenants(gateway))["second"]
        queues = {gateway.tenant_id: (4.0, 10.0), other_id: (1.0, 10.0)}
        gateway.engine.report_load(load(5.0, 0.1, **queues))
        while (await other.post("/v1/completions", json=TEXT)).status_code == 200:
            await asyncio.sleep(0.01)
        while (paying := await http.post("/v1/completions", json=TEXT)).status_code == 503:
            await asyncio.sleep(0.05)  # until the new weight is known
    assert paying.status_code == 200


async def _tenants(gateway: Gateway) -> dict[str, str]:
    async with gateway.admin() as admin:
        return {tenant["name"]: tenant["id"] for tenant in (await admin.get("/admin/v1/tenants")).json()["data"]}
