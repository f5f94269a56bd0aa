"""The link to the engines: an adapter that was just stored is brought to the engine that will serve it."""

from loragate.finetune.worker.engine_link import EngineLink
from tests.engine.fleet.memory_client import MemoryClient
from tests.engine.fleet.test_fleet import fleet_of, request, tokens_of


async def test_an_adapter_is_prefetched_where_it_will_be_requested() -> None:
    clients = MemoryClient(), MemoryClient(), MemoryClient()
    async with fleet_of(*clients) as fleet:
        link = EngineLink(fleet)
        for number in range(12):
            link.prefetch("tenant", f"sha256:{number}")
        for number in range(12):
            await tokens_of(fleet, request(f"sha256:{number}"))
    for client in clients:
        requested = [submit.adapter.digest for submit in client.submits]
        assert [each.digest for each in client.prefetched] == requested[-8:]
    assert sum(bool(client.submits) for client in clients) > 1


async def test_without_an_engine_nothing_is_prefetched() -> None:
    client = MemoryClient()
    client.ready = False
    async with fleet_of(client) as fleet:
        EngineLink(fleet).prefetch("tenant", "sha256:0")
    assert client.prefetched == []
