"""A fleet's requests: spread by load, and moved when an engine is lost before it has answered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.placement import NEAR_REQUESTS
from loragate.v1 import engine_pb2 as pb

from .memory_client import MemoryClient


@asynccontextmanager
async def fleet_of(*clients: MemoryClient) -> AsyncIterator[Fleet]:
    """Run a fleet of the engines "0", "1", …, and wait until it uses those that are connected."""
    addresses = [EngineAddress(str(number), f"unix:/{number}") for number in range(len(clients))]
    fleet = Fleet(addresses, lambda address: clients[int(address.id)])
    await fleet.start()
    await until(lambda: len(fleet.ready_members) == sum(client.ready for client in clients))
    try:
        yield fleet
    finally:
        await fleet.close()
        assert all(client.closed for client in clients)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def waiting_request(fleet: Fleet, *clients: MemoryClient) -> asyncio.Task[list[int]]:
    """Start a request that waits on one of the engines for its first delta."""
    for client in clients:
        client.pause_at = 0
    running = asyncio.create_task(tokens_of(fleet, request()))
    await until(lambda: any(client.submits for client in clients))
    return running


def request(digest: str = "", tokens: int = 3) -> pb.Submit:
    adapter = pb.AdapterRef(tenant_id="tenant", digest=digest)
    return pb.Submit(prompt_token_ids=[1], adapter=adapter, sampling=pb.Sampling(max_tokens=tokens))


async def tokens_of(fleet: Fleet, submit: pb.Submit) -> list[int]:
    async with fleet.generate(submit) as deltas:
        return [token async for delta in deltas for token in delta.token_ids]


async def test_requests_spread_over_the_engines() -> None:
    clients = MemoryClient(), MemoryClient(), MemoryClient()
    for client in clients:
        client.pause_at = 1
    async with fleet_of(*clients) as fleet:
        running = [asyncio.create_task(tokens_of(fleet, request())) for _ in range(9)]
        await until(lambda: sum(len(client.submits) for client in clients) == 9)
        sent = [len(client.submits) for client in clients]
        assert max(sent) - min(sent) <= NEAR_REQUESTS + 1, "like requests gather, but no further than this"
        assert [member.requests for member in fleet.members] == sent
        for client in clients:
            client.die()
        await asyncio.gather(*running, return_exceptions=True)
        assert [member.requests for member in fleet.members] == [0, 0, 0]


async def test_an_engine_with_a_queue_is_spared_and_counts_what_it_was_sent_since_its_report() -> None:
    clients = MemoryClient(), MemoryClient()
    queues = [pb.TenantQueue(tenant_id="a", seconds=seconds) for seconds in (3.0, 1.0)]
    for client, queue in zip(clients, queues, strict=True):
        client.load = pb.Load(request_seconds=1.0, tenants=[queue])
    async with fleet_of(*clients) as fleet:
        for _ in range(4):
            await tokens_of(fleet, request())
    assert [len(client.submits) for client in clients] == [1, 3]


async def test_a_request_that_was_lost_before_its_first_delta_runs_elsewhere() -> None:
    clients = MemoryClient(), MemoryClient()
    async with fleet_of(*clients) as fleet:
        running = await waiting_request(fleet, *clients)
        first, second = sorted(clients, key=lambda client: not client.submits)
        second.pause_at = None
        first.die()
        assert await running == [0, 1, 2]
        assert [len(first.submits), len(second.submits)] == [1, 1]


async def test_after_its_first_delta_a_request_ends_with_its_engine() -> None:
    clients = MemoryClient(), MemoryClient()
    async with fleet_of(*clients) as fleet:
        for client in clients:
            client.pause_at = 1
        async with fleet.generate(request()) as deltas:
            await anext(deltas)
            (owner,) = [client for client in clients if client.submits]
            owner.die()
            with pytest.raises(EngineUnavailable, match="lost"):
                await anext(deltas)
    assert sum(len(client.submits) for client in clients) == 1


async def test_the_last_engines_error_is_the_requests() -> None:
    clients = MemoryClient(), MemoryClient()
    async with fleet_of(*clients) as fleet:
        running = await waiting_request(fleet, *clients)
        for client in clients:
            client.die()
        with pytest.raises(EngineUnavailable, match="lost"):
            await running
        with pytest.raises(EngineUnavailable, match="no engine"):
            await tokens_of(fleet, request())


async def test_an_engine_that_returns_is_used_again() -> None:
    client = MemoryClient()
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    fleet = Fleet([EngineAddress("0", "unix:/0")], lambda address: client, changed=changed)
    await fleet.start()
    for count, ready in enumerate((True, False, True), 1):
        client.ready = ready
        await until(lambda count=count: changes == count)  # type: ignore[misc]
        assert fleet.ready is ready
    await fleet.close()


async def test_an_engine_is_used_only_once_its_base_model_is_adopted() -> None:
    client, adopted = MemoryClient(), asyncio.Event()

    async def adopt(manifest: pb.Manifest) -> bool:
        await adopted.wait()
        return True

    fleet = Fleet([EngineAddress("0", "unix:/0")], lambda address: client, adopt=adopt)
    await fleet.start()
    await asyncio.sleep(0.05)
    assert not fleet.ready
    adopted.set()
    await fleet.connected(30)
    assert fleet.ready
    await fleet.close()


async def test_a_popular_adapter_is_fetched_by_another_engine_before_it_is_sent_requests() -> None:
    clients = MemoryClient(), MemoryClient()
    popular, stored = (pb.AdapterRef(tenant_id="tenant", digest=digest) for digest in ("popular", "stored"))
    async with fleet_of(*clients) as fleet:
        await tokens_of(fleet, request("popular"))
        first, second = sorted(clients, key=lambda client: not client.submits)
        for member in fleet.members:
            member.keep([], [stored])
        for client in clients:
            client.pause_at = 1
        running = [asyncio.create_task(tokens_of(fleet, request("popular"))) for _ in range(6)]
        await until(lambda: len(first.submits) == 7)
        assert second.prefetched == [stored, popular]
        second.held = [popular]
        await until(lambda: all(("tenant", "popular") in member.held for member in fleet.members))
        running.append(asyncio.create_task(tokens_of(fleet, request("popular"))))
        await until(lambda: len(second.submits) == 1)
        for member in fleet.members:
            member.retire([popular])
        assert second.prefetched == [stored, popular], "unchanged until the next command"
        assert not any(member.held for member in fleet.members)
        for client in clients:
            client.die()
        await asyncio.gather(*running, return_exceptions=True)


async def test_requests_carry_what_their_tenant_receives_from_the_other_engines() -> None:
    clients = MemoryClient(), MemoryClient(), MemoryClient()
    addresses = [EngineAddress(str(number), f"unix:/{number}") for number in range(3)]
    async with fleet_of(*clients) as fleet:
        for number, client in enumerate(clients):
            client.served = {"tenant": 10.0**number, "another": 7.0}
        for _ in range(2):
            submit = pb.Submit(prompt_token_ids=[1], share=pb.Share(tenant_id="tenant"), sampling=pb.Sampling())
            async with fleet.generate(submit):
                (member,) = [member for member in fleet.members if member.requests]
                assert submit.share.elsewhere == 111.0 - 10.0 ** int(member.id)
            await fleet.update([each for each in addresses if each.id == member.id])  # the sum does not decrease
