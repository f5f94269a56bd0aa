"""How long a resolved route is valid, and what invalidates it earlier."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.jobs.job import JobRequest
from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.adapters import AdapterRow
from loragate.adapter_store.tables.jobs import JobRow
from loragate.finetune.jobs.model_name import tuned_name
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import NotFound
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.text.base_model import BaseModel, read_base_model
from tests.gateway import tiny_model
from tests.gateway.auth_clock import Clock

Tenants = tuple[str, str, str]


class Worker:
    """The parts of one gateway process."""

    def __init__(self, store: Store, base: BaseModel) -> None:
        self.store = store
        self.resolver = Resolver(store, 5)
        self.base = base
        self.reads = 0

    async def version(self, caller: TenantPrincipal, model: str = "support") -> int:
        target = await self.resolver.resolve(caller, self.base, model)
        assert target.adapter is not None
        return target.adapter.version


@pytest.fixture
def base() -> BaseModel:
    return read_base_model(tiny_model.manifest(tiny_model.byte_level_tokenizer()), None)


@asynccontextmanager
async def worker(config: GatewayConfig, notices: Notices, base: BaseModel) -> AsyncIterator[Worker]:
    store = await Store.open(config.database_url, config.blob_url, config.secret_key, notices)
    made = Worker(store, base)
    tenant = store.tenant

    @asynccontextmanager
    async def counted(tenant_id: str, **options: bool) -> AsyncIterator[object]:
        made.reads += 1
        async with tenant(tenant_id, **options) as scope:
            yield scope

    store.tenant = counted  # type: ignore[method-assign,assignment]
    try:
        yield made
    finally:
        await store.close()


@pytest.fixture
async def caller(config: GatewayConfig, tenants: Tenants, base: BaseModel, tmp_path: Path) -> TenantPrincipal:
    """A tenant that has an adapter with two versions; `default` is the second."""
    store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    await store.publish_manifest(base.manifest)
    for seed in (1, 2):
        folder = tiny_model.write_adapter(tmp_path / str(seed), seed=seed)
        async with store.tenant(tenants[0], write=True) as scope:
            config_json = (folder / "adapter_config.json").read_bytes()
            await scope.publisher.publish("support", config_json, folder / "adapter_model.safetensors", probe=no_probe)
    found = await store.authenticate(tenants[1])
    await store.close()
    assert found is not None
    assert isinstance(found.principal, TenantPrincipal)
    return found.principal


async def point_at(store: Store, caller: TenantPrincipal, *targets: AliasTarget) -> None:
    async with store.tenant(caller.tenant_id, write=True) as scope:
        await scope.adapters.set_alias("support", "default", targets)


async def test_a_moved_alias_applies_at_once_in_every_process(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    notices = LocalNotices()
    async with worker(config, notices, base) as here, worker(config, notices, base) as elsewhere:
        workers = (here, elsewhere)
        for _ in range(3):
            assert [await each.version(caller) for each in workers] == [2, 2]
        assert [each.reads for each in workers] == [1, 1]
        await point_at(elsewhere.store, caller, AliasTarget(1))
        assert [await each.version(caller) for each in workers] == [1, 1]


async def test_without_a_notice_it_applies_after_the_lifetime(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here, worker(config, LocalNotices(), base) as elsewhere:
        assert await here.version(caller) == 2
        await point_at(elsewhere.store, caller, AliasTarget(1))
        clock.now += 4.99
        assert await here.version(caller) == 2
        clock.now += 0.02
        assert await here.version(caller) == 1


async def test_a_route_is_cached_and_its_target_drawn_each_time(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here:
        await point_at(here.store, caller, AliasTarget(1, 50), AliasTarget(2, 50))
        before = here.reads
        drawn = [await here.version(caller) for _ in range(200)]
        assert here.reads == before + 1
        assert 50 < drawn.count(1) < 150


async def test_a_deleted_adapter_disappears_at_once(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here:
        assert await here.version(caller, "support:1") == 1
        async with here.store.tenant(caller.tenant_id, write=True) as scope:
            await scope.adapters.delete("support")
        for model in ("support", "support:1"):
            with pytest.raises(NotFound):
                await here.version(caller, model)


async def test_a_read_overtaken_by_a_change_is_not_cached(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here:
        opened = here.store.tenant
        read_it, resume = asyncio.Event(), asyncio.Event()

        @asynccontextmanager
        async def held_up(tenant_id: str, **options: bool) -> AsyncIterator[object]:
            async with opened(tenant_id, **options) as scope:
                yield scope
            read_it.set()
            await resume.wait()

        here.store.tenant = held_up  # type: ignore[method-assign,assignment]
        early = asyncio.create_task(here.version(caller))
        await read_it.wait()
        here.store.tenant = opened  # type: ignore[method-assign]
        await point_at(here.store, caller, AliasTarget(1))
        resume.set()
        assert await early == 2  # it read before the change
        assert await here.version(caller) == 1


async def test_tenants_do_not_share_routes(
    config: GatewayConfig, caller: TenantPrincipal, tenants: Tenants, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here:
        found = await here.store.authenticate(tenants[2])
        assert found is not None
        other = found.principal
        assert isinstance(other, TenantPrincipal)
        assert await here.version(caller) == 2
        with pytest.raises(NotFound):
            await here.version(other)


async def test_another_base_model_is_read_again(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    async with worker(config, LocalNotices(), base) as here:
        await here.version(caller)
        other = tiny_model.manifest(tiny_model.byte_level_tokenizer())
        other.base_digest = "sha256:" + "cd" * 32
        here.base = read_base_model(other, None)
        before = here.reads
        await here.version(caller)
        assert here.reads == before + 1


async def test_a_jobs_result_is_read_once(
    config: GatewayConfig, caller: TenantPrincipal, base: BaseModel, clock: Clock
) -> None:
    request = JobRequest("supervised", base.id, "file-1", None, {}, "support", 7, {})
    async with worker(config, LocalNotices(), base) as here:
        async with here.store.tenant(caller.tenant_id, write=True) as scope:
            job = await scope.jobs.create(request)
        name = tuned_name(base.id, "first", "support", job.id)
        async with here.store._database.tenant(caller.tenant_id, write=True) as session:
            made = update(AdapterRow).where(AdapterRow.name == "support").values(name=name.adapter)
            await session.execute(made)
            await session.execute(update(JobRow).where(JobRow.id == job.id).values(fine_tuned_model=name.model))
        async with here.store.tenant(caller.tenant_id, write=True) as scope:
            await scope.adapters.set_alias(name.adapter, "trained", [AliasTarget(1)])
        before = here.reads
        assert [await here.version(caller, name.model) for _ in range(100)] == [1] * 100
        assert here.reads == before + 1
        async with here.store.tenant(caller.tenant_id, write=True) as scope:
            await scope.adapters.set_alias(name.adapter, "trained", [AliasTarget(2)])
        assert await here.version(caller, name.model) == 2
