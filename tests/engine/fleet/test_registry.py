"""Engines join and leave a fleet with their leases."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.registry import RegistryFollower
from loragate.engine.link_security import LinkTls

from .memory_client import MemoryClient
from .test_fleet import request, tokens_of, until


@dataclass(frozen=True)
class Lease:
    id: str
    target: str = "127.0.0.1:1"
    machine: str | None = None
    certificate_name: str | None = None
    expired: bool = False


@dataclass
class Registry:
    leases: list[Lease] = field(default_factory=list)
    error: Exception | None = None
    clients: dict[str, MemoryClient] = field(default_factory=dict)  # by the engine's id

    async def read(self) -> list[Lease]:
        if self.error is not None:
            raise self.error
        return list(self.leases)

    def connect(self, address: EngineAddress) -> MemoryClient:
        return self.clients.setdefault(address.id, MemoryClient())


@asynccontextmanager
async def following(registry: Registry, *configured: EngineAddress, tls: LinkTls | None = None) -> AsyncIterator[Fleet]:
    fleet = Fleet(configured, registry.connect)
    await fleet.start()
    follower = asyncio.create_task(RegistryFollower(fleet, configured, registry.read, tls).run(every=0.01))
    try:
        yield fleet
    finally:
        follower.cancel()
        await asyncio.wait([follower])
        await fleet.close()


def ids(fleet: Fleet) -> set[str]:
    return {member.id for member in fleet.ready_members}


async def test_engines_join_and_leave() -> None:
    registry = Registry([Lease("a")])
    async with following(registry, EngineAddress("own", "unix:/own")) as fleet:
        await until(lambda: ids(fleet) == {"own", "a"})
        registry.leases = [Lease("b"), Lease("a")]
        await until(lambda: ids(fleet) == {"own", "a", "b"})
        registry.leases = []
        await until(lambda: ids(fleet) == {"own"})
        await until(lambda: registry.clients["a"].closed and registry.clients["b"].closed)
        assert not registry.clients["own"].closed


async def test_an_engine_that_gave_its_lease_back_finishes_its_requests() -> None:
    registry = Registry([Lease("a")])
    async with following(registry) as fleet:
        await until(lambda: ids(fleet) == {"a"})
        client = registry.clients["a"]
        client.pause_at = 1
        async with fleet.generate(request()) as deltas:
            await anext(deltas)
            registry.leases = []
            await until(lambda: not fleet.members)
            assert not client.closed
        await until(lambda: client.closed)


async def test_an_engine_that_responds_outlives_its_lease_and_the_registry() -> None:
    registry = Registry([Lease("a"), Lease("b")])
    async with following(registry) as fleet:
        await until(lambda: ids(fleet) == {"a", "b"})
        registry.leases = [Lease("a", expired=True), Lease("b", expired=True), Lease("c", expired=True)]
        registry.clients["b"].die()
        await until(lambda: [member.id for member in fleet.members] == ["a"])
        registry.error = OSError("the database is gone")
        assert await tokens_of(fleet, request()) == [0, 1, 2]
        assert ids(fleet) == {"a"}


@pytest.mark.parametrize(
    "lease",
    [
        Lease("a", machine="another machine"),
        Lease("a", target="gpu:50100"),  # over a network, without TLS
        Lease("own", target="127.0.0.1:9"),
        Lease("a", target="unix:/own"),
    ],
    ids=["of another machine", "without TLS", "of a configured id", "of a configured address"],
)
async def test_leases_that_are_not_used(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    registry = Registry([lease, Lease("b", machine=socket.gethostname())])
    async with following(registry, EngineAddress("own", "unix:/own")) as fleet:
        await until(lambda: ids(fleet) == {"own", "b"})
        assert {member.address.target for member in fleet.members} == {"unix:/own", "127.0.0.1:1"}
    assert sum("engine a is not used" in record.getMessage() for record in caplog.records) == (":50100" in lease.target)


async def test_an_engine_that_moved_is_connected_to_at_its_new_address() -> None:
    registry = Registry([Lease("a", target="127.0.0.1:1")])
    async with following(registry) as fleet:
        await until(lambda: ids(fleet) == {"a"})
        registry.leases = [Lease("a", target="127.0.0.1:2")]
        await until(lambda: [member.address.target for member in fleet.members] == ["127.0.0.1:2"])
