"""Imports are resumed when their process has died or was stopped, and become one version each; on both databases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store.imports.rows import IDLE_TIMEOUT
from loragate.adapter_store.tables.adapters import AdapterImportRow, DeferredPublicationRow
from loragate.adapter_store.timestamps import utc_now
from loragate.gateway.background.deferred_publications import run_deferred_publication_loop
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.imports.resume import run_resume_loop
from loragate.gateway.resilience.timeouts import cancel_and_wait as cancelled
from tests.gateway import tiny_model
from tests.gateway.fake_hub import FakeHub, fake_hub
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.imports.test_hub import CONFIG, TENSORS, begin, ended
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

Tenants = tuple[str, str, str]


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[FakeHub]:
    """A hub with an adapter, whose last bytes arrive slowly."""
    async with fake_hub() as running:
        running.offer("acme/poet", tiny_model.write_adapter(tmp_path / "poet"))
        running.replies[TENSORS] = replace(running.replies[TENSORS], stalls_after=10)
        yield running


@pytest.fixture
async def config(on_both: GatewayConfig, hub: FakeHub) -> GatewayConfig:
    return replace(on_both, stall_seconds=60.0, imports=ImportConfig(hub=hub.url, hosts=(), max_concurrent=1))


@asynccontextmanager
async def resuming(gateway: Gateway) -> AsyncIterator[None]:
    """Run the gateway's periodic job at short intervals."""
    assert gateway.services is not None
    services = gateway.services
    await gateway.until_ready()
    finishing = run_deferred_publication_loop(services.store, services.link, gateway.config, every=0.05)
    tasks = [asyncio.create_task(each) for each in (run_resume_loop(services, every=0.05), finishing)]
    try:
        yield
    finally:
        await cancelled(*tasks)


async def a_while_passes(gateway: Gateway) -> None:
    """Move the clock so far that leases have expired."""
    assert gateway.services is not None
    async with gateway.services.store._database.operator(write=True) as session:
        await session.execute(update(AdapterImportRow).values(updated_at=utc_now() - IDLE_TIMEOUT))
        await session.execute(update(DeferredPublicationRow).values(due_at=utc_now()))


async def became(gateway: Gateway, import_id: str) -> dict[str, Any]:
    """Return the import, whose version is the only one and is ready."""
    async with gateway.http() as http:
        done = await ended(http, import_id)
        assert (done["status"], done["version"], done["error"]) == ("ready", 1, None), done
        async with asyncio.timeout(60):
            while (await http.get("/v1/adapters/poet/versions/1")).json()["status"] != "ready":
                await asyncio.sleep(0.02)
        adapter = (await http.get("/v1/adapters/poet")).json()
        assert (adapter["latest_version"], list(adapter["aliases"])) == (1, ["canary"])
    return done


async def test_an_import_continues_elsewhere_when_its_process_is_killed_while_fetching(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: Tenants
) -> None:
    async with gateway_in_a_process(config, engine, tenants) as dying, dying.gateway.http() as http:
        begun = await begin(http, alias="canary")
        await hub.waiting.wait()
        dying.process.kill()
        await dying.process.wait()
    hub.replies[TENSORS] = replace(hub.replies[TENSORS], stalls_after=None)
    async with serving(config, engine, tenants) as one, serving(config, engine, tenants) as other:
        await a_while_passes(one)
        async with resuming(one), resuming(other):
            done = await became(other, begun["id"])
        async with one.admin() as admin:
            events = (await admin.get(f"/admin/v1/audit?tenant_id={one.tenant_id}")).json()["data"]
    actors = {each["action"]: each["actor"] for each in events}
    assert actors["adapter_version.create"] == actors["import.create"] != "system", "who asked for it"
    assert done["bytes_done"] == sum(len(hub.replies[file].body) for file in (CONFIG, TENSORS))
    assert [asked.target for asked in hub.asked] == [CONFIG, TENSORS] * 2


async def test_an_import_is_not_published_again_when_its_process_is_killed_while_probing(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: Tenants
) -> None:
    hub.replies[TENSORS] = replace(hub.replies[TENSORS], stalls_after=None)
    engine.pause_after = 0
    async with gateway_in_a_process(config, engine, tenants) as dying, dying.gateway.http() as http:
        begun = await begin(http, alias="canary")
        await engine.paused.wait()
        dying.process.kill()
        await dying.process.wait()
    engine.resume.set()
    engine.reset()
    async with serving(config, engine, tenants) as one:
        await a_while_passes(one)
        async with resuming(one):
            await became(one, begun["id"])
    assert [asked.target for asked in hub.asked] == [CONFIG, TENSORS], "it was there already"


async def test_an_import_continues_at_once_when_its_server_is_stopped(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: Tenants
) -> None:
    """Except imports that need a token, which is lost."""
    async with serving(config, engine, tenants) as stopping, stopping.http() as http:
        await stopping.until_ready()
        begun, private = await begin(http, alias="canary"), await begin(http, token="hf_secret")
        await hub.waiting.wait()
    hub.replies[TENSORS] = replace(hub.replies[TENSORS], stalls_after=None)
    async with serving(config, engine, tenants) as one, one.http() as http:
        assert (await http.get(f"/v1/imports/{begun['id']}")).json()["status"] != "failed"
        failed = await ended(http, private["id"])
        assert (failed["status"], failed["error"]["code"]) == ("failed", "import_interrupted")
        async with resuming(one):
            await became(one, begun["id"])


async def test_an_import_whose_source_is_no_longer_allowed_fails_with_the_reason(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: Tenants
) -> None:
    async with serving(config, engine, tenants) as stopping, stopping.http() as http:
        await stopping.until_ready()
        begun = await begin(http)
        await hub.waiting.wait()
    closed = replace(config, imports=replace(config.imports, hub=None))
    async with serving(closed, engine, tenants) as one, one.http() as http, resuming(one):
        failed = await ended(http, begun["id"])
    assert (failed["status"], failed["error"]["code"]) == ("failed", "source_not_allowed")
