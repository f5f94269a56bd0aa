"""Calls that take places and keep them: of the probes, of other tenants."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tokenizers import Tokenizer

from loragate.gateway.auth import authenticator
from loragate.gateway.connections import connection_limit
from loragate.gateway.grpc import dispatcher, health
from loragate.gateway.http.bodies import Pace
from loragate.v1 import adapters_pb2
from loragate.v1 import fine_tuning_pb2 as pb
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import Client, code_of, connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.tiny_model import MODEL_ID


async def test_watchers_take_no_place_of_probes(gateway: Gateway) -> None:
    """64 endless anonymous streams once made every probe fail, and orchestrators restart what fails its probes."""
    async with connected(gateway.grpc_target, None) as stranger, connected(gateway.grpc_target, None) as probe:
        stub: Any = HealthStub(stranger.channel)
        watches = [stub.Watch(HealthCheckRequest()) for _ in range(100)]
        ended = await asyncio.gather(*(watch.read() for watch in watches), return_exceptions=True)
        watching = [answer for answer in ended if isinstance(answer, HealthCheckResponse)]
        assert len(watching) == 64, "half of the places are left for other addresses"
        for _ in range(20):
            answer = await HealthStub(probe.channel).Check(HealthCheckRequest())  # type: ignore[no-untyped-call]
            assert answer.status == HealthCheckResponse.SERVING


async def test_probes_that_ask_nothing_are_ended(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PACE", Pace(0.05))
    async with connected(gateway.grpc_target, None) as client:
        silent = client.channel.stream_unary("/grpc.health.v1.Health/Check")()
        assert await silent.code() == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is that of the process; what is under test is who gets them."""
    monkeypatch.setattr(dispatcher, "_MAX_CALLS", 16)


async def followed_job(gateway: Gateway, client: Client) -> pb.ListFineTuningEventsRequest:
    """A job of which the tenant can follow the events without an end."""
    async with gateway.http() as http:
        file = await http.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"{}")})
    asked = pb.CreateFineTuningJobRequest(model=MODEL_ID, training_file=file.json()["id"])
    job = await client.fine_tuning.Create(asked, metadata=client.metadata)
    await FakeWorker(gateway).run("log_event", job.id, "begun")
    return pb.ListFineTuningEventsRequest(fine_tuning_job_id=job.id, follow=True)


async def follow(client: Client, request: pb.ListFineTuningEventsRequest, times: int) -> list[Any]:
    """Return the first event of each call, or how it was rejected."""
    calls = [client.fine_tuning.ListEvents(request, metadata=client.metadata) for _ in range(times)]
    return await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)


async def test_one_tenants_calls_leave_places_to_others(few_places: None, gateway: Gateway) -> None:
    """Calls that never end, in as many connections as it takes, once took the places of all tenants."""
    async with AsyncExitStack() as stack:
        connect = stack.enter_async_context
        greedy = [await connect(connected(gateway.grpc_target, gateway.key)) for _ in range(4)]
        other = await connect(connected(gateway.grpc_target, gateway.other_key))
        request = await followed_job(gateway, greedy[0])
        answers = [answer for client in greedy for answer in await follow(client, request, 5)]
        rejected = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert {error.code() for error in rejected} == {grpc.StatusCode.UNAVAILABLE}
        assert len(rejected) == 20 - 8, "one tenant alone has half"
        assert not (await other.adapters.List(adapters_pb2.ListAdaptersRequest(), metadata=other.metadata)).data
        mine = greedy[0].adapters.List(adapters_pb2.ListAdaptersRequest(), metadata=greedy[0].metadata)
        assert (await rejection(mine)).code == "overloaded"


async def test_calls_without_a_valid_key_hold_no_place(
    few_places: None, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for the database, for seconds; what they wait for in is bounded by address."""
    monkeypatch.setattr(authenticator, "_LOOKUP_SECONDS", 60)
    assert gateway.services is not None
    store, go_on = gateway.services.store, asyncio.Event()
    read = store.authenticate

    async def slow(key: str) -> Any:
        if key != gateway.key:
            await go_on.wait()
        return await read(key)

    monkeypatch.setattr(store, "authenticate", slow)
    async with AsyncExitStack() as stack:
        invented = f"lg-{'a' * 16}-{'x' * 32}"
        stranger, known = [
            await stack.enter_async_context(connected(gateway.grpc_target, key)) for key in (invented, gateway.key)
        ]
        asked = adapters_pb2.ListAdaptersRequest()
        waiting = [stranger.adapters.List(asked, metadata=stranger.metadata) for _ in range(30)]
        while gateway.services.lifecycle.running < len(waiting):
            await asyncio.sleep(0.01)
        assert not (await known.adapters.List(asked, metadata=known.metadata)).data
        go_on.set()
        assert {await code_of(call) for call in waiting} == {grpc.StatusCode.UNAUTHENTICATED}


async def test_a_tenant_follows_a_bounded_number_of_jobs(gateway: Gateway) -> None:
    async with connected(gateway.grpc_target, gateway.key) as client:
        request = await followed_job(gateway, client)
        answers = await follow(client, request, 40)
        rejected = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert {error.code() for error in rejected} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(rejected) == 40 - 32
        once = pb.ListFineTuningEventsRequest(fine_tuning_job_id=request.fine_tuning_job_id)
        [event] = [each async for each in client.fine_tuning.ListEvents(once, metadata=client.metadata)]
        assert event.message == "begun", "who does not follow is served"


async def test_connections_of_the_grpc_port_are_bounded(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections without a call cost files, which the process also needs for HTTP, the database and the engine."""
    monkeypatch.setattr(connection_limit, "_MAX_GRPC_CONNECTIONS", 8)
    async with stub_engine(tokenizer) as engine:
        config = await new_config(tmp_path, engine)
        async with serving(config, engine, await new_tenants(config)) as gateway, AsyncExitStack() as stack:
            host, _, port = gateway.grpc_target.rpartition(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
            for _, writer in opened:
                stack.callback(writer.close)
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            async with asyncio.timeout(10):
                while sum(reader.at_eof() for reader, _ in opened) < 40 - 8:
                    await asyncio.sleep(0.05)
            async with gateway.http() as http:
                assert (await http.get("/healthz")).status_code == 200
