"""The limit of changes: of each tenant by itself, over REST and gRPC; reads and inference are not counted."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.dependencies.requirements import Admin, AdminOrAnybody, Public, count_change
from loragate.gateway.errors import TooManyRequests
from loragate.gateway.limits import changes
from loragate.gateway.limits.changes import ChangeLimiter
from loragate.v1 import adapters_pb2 as pb
from tests.gateway.auth.test_roles import routes_of
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(changes.time, "monotonic", lambda: now[0])
    return now


def test_a_minutes_worth_at_once_and_then_as_many_as_time_allows(clock: list[float]) -> None:
    limiter = ChangeLimiter(7)
    for _ in range(7):
        limiter.charge("one")
    with pytest.raises(TooManyRequests) as refused:
        limiter.charge("one")
    assert refused.value.retry_after == pytest.approx(60 / 7, abs=0.01)
    limiter.charge("two")
    clock[0] += 60 / 7
    limiter.charge("one")
    with pytest.raises(TooManyRequests):
        limiter.charge("one")


def test_tenants_that_make_no_changes_are_forgotten(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_SWEEP_AT", 10)
    limiter = ChangeLimiter(7)
    for number in range(100):
        limiter.charge(str(number))
        clock[0] += 60
    assert len(limiter._buckets) <= 10


def test_without_a_limit_everything_passes() -> None:
    limiter = ChangeLimiter(None)
    for _ in range(10_000):
        limiter.charge("one")


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    async with serving(replace(config, max_changes_per_minute=3), engine, tenants) as running:
        await running.until_ready()
        yield running


async def test_changes_are_limited_and_nothing_else(gateway: Gateway) -> None:
    async with gateway.http() as http, gateway.http(gateway.other_key) as other, gateway.admin() as admin:
        for _ in range(3):
            assert (await http.patch("/v1/adapters/none", json={"description": "x"})).status_code == 404
        refused = await http.patch("/v1/adapters/none", json={"description": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) >= 19
        assert (await http.delete("/v1/adapters/none")).status_code == 429
        async with connected(gateway.grpc_target, gateway.key) as client:
            deletion = client.adapters.Delete(pb.DeleteAdapterRequest(name="none"), metadata=client.metadata)
            rejected = await rejection(deletion)
        assert rejected.code == "rate_limit_exceeded"
        assert (await http.get("/v1/adapters")).status_code == 200
        response = await http.post("/v1/completions", json={"model": "tiny/base-model", "prompt": "a", "max_tokens": 1})
        assert response.status_code == 200, response.text
        assert (await other.delete("/v1/adapters/none")).status_code == 404
        for _ in range(5):
            answer = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"weight": 2})
            assert answer.status_code == 200, "operators are not limited"


def test_every_route_that_changes_something_counts(config: GatewayConfig) -> None:
    inference = {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/embeddings",
        "/v1/classify",
        "/v1/score",
        "/v1/rerank",
        "/v2/rerank",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/tokenize",
        "/detokenize",
    }
    # Of the training API: steps of a run, which have limits of their own, and what changes nothing.
    steps = {"create_model", "load_weights", "forward_backward", "optim_step", "session_heartbeat", "asample"}
    steps |= {"save_weights", "save_weights_for_sampler", "save_weights_external", "create_sampling_session"}
    reading = {"client/config", "client/dynamic_config", "telemetry", "get_info", "weights_info", "retrieve_future"}
    reading |= {"cancel_future", "sessions/search", "{path:path}"}
    training = {f"/api/v1/{name}" for name in steps | reading}
    uncounted = set()
    for route in routes_of(create_app(config)):
        if route.methods & {"POST", "PUT", "PATCH", "DELETE"}:
            calls = [dependency.call for dependency in route.dependant.dependencies]
            public = any(isinstance(call, Public | Admin | AdminOrAnybody) for call in calls)
            if count_change not in calls and not public:
                uncounted.add(route.path)
    assert uncounted == inference | training
