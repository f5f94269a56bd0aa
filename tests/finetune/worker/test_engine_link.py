"""The link to the engines: an adapter that was just stored is brought to the engine that will serve it."""

from typing import Any

import pytest

from loragate.finetune.worker import engine_link
from loragate.finetune.worker.engine_link import EngineLink, StoredAdapters
from tests.engine.fleet.memory_client import MemoryClient
from tests.engine.fleet.test_fleet import fleet_of, request, tokens_of


class NothingStored:
    """A store whose adapters are all lost."""

    async def open_adapter(self, tenant_id: str, digest: str) -> Any:
        raise LookupError


@pytest.fixture
def source() -> StoredAdapters:
    store: Any = NothingStored()
    return StoredAdapters(store)


async def test_an_adapter_is_preloaded_where_it_will_be_requested(source: StoredAdapters) -> None:
    clients = MemoryClient(), MemoryClient(), MemoryClient()
    async with fleet_of(*clients) as fleet:
        link = EngineLink(fleet, source)
        for number in range(12):
            link.preload("tenant", f"sha256:{number}", b"{}", b"tensors")
        for number in range(12):
            await tokens_of(fleet, request(f"sha256:{number}"))
    for client in clients:
        requested = [submit.adapter.digest for submit in client.submits]
        assert [each.digest for each in client.preloaded] == requested
    assert sum(bool(client.submits) for client in clients) > 1


async def test_without_an_engine_nothing_is_preloaded(source: StoredAdapters) -> None:
    client = MemoryClient()
    client.ready = False
    async with fleet_of(client) as fleet:
        EngineLink(fleet, source).preload("tenant", "sha256:0", b"{}", b"tensors")
    assert client.preloaded == []
    with pytest.raises(LookupError):
        await source.open("tenant", "sha256:0")


async def test_what_is_held_is_read_once_and_by_its_tenant(
    source: StoredAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.hold("tenant", "sha256:0", b"{}", b"tensors")
    with pytest.raises(LookupError):
        await source.open("other", "sha256:0")
    files = await source.open("tenant", "sha256:0")
    assert (files.config_json, [chunk async for chunk in files.tensors]) == (b"{}", [b"tensors"])
    with pytest.raises(LookupError):
        await source.open("tenant", "sha256:0")
    monkeypatch.setattr(engine_link, "_HELD_BYTES", 30)
    for number in range(5):
        source.hold("tenant", f"sha256:{number}", b"{}", b"tensors")
    held = [await source.open("tenant", f"sha256:{number}") for number in (2, 3, 4)]
    assert len(held) == 3
    with pytest.raises(LookupError):
        await source.open("tenant", "sha256:1")
