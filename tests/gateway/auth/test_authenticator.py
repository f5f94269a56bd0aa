"""How long a key's cache entry is valid, and what discards it earlier."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from loragate.adapter_store.auth.principal import Authentication, TenantPrincipal
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.store import Store
from loragate.gateway.auth import authenticator as module
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.auth_clock import Clock

Tenants = tuple[str, str, str]


@dataclass
class Worker:
    """The parts of one gateway process."""

    store: Store
    authenticator: Authenticator
    key_use: KeyUse
    reads: list[str] = field(default_factory=list)
    around: Callable[[Callable[[], Awaitable[Authentication | None]]], Awaitable[Authentication | None]] | None = None


@asynccontextmanager
async def worker(config: GatewayConfig, notices: Notices, lifetime: float = 5) -> AsyncIterator[Worker]:
    previous = config.previous_secret_keys
    store = await Store.open(
        config.database_url, config.blob_url, config.secret_key, notices, previous_secret_keys=previous
    )
    key_use = KeyUse(store, interval=3600)
    made = Worker(store, Authenticator(store, lifetime, key_use), key_use)
    read = store.authenticate

    async def authenticate(key: str) -> Authentication | None:
        made.reads.append(key)
        return await (read(key) if made.around is None else made.around(lambda: read(key)))

    store.authenticate = authenticate  # type: ignore[method-assign]
    try:
        yield made
    finally:
        await store.close()


async def revoke(store: Store, principal: Any) -> None:
    assert isinstance(principal, TenantPrincipal)
    async with store.admin(write=True) as admin:
        await admin.keys.revoke(principal.key_id)


async def test_a_cached_key_is_valid_for_its_lifetime_and_no_longer(
    config: GatewayConfig, tenants: Tenants, clock: Clock
) -> None:
    async with worker(config, LocalNotices()) as here, worker(config, LocalNotices()) as elsewhere:
        principal = await here.authenticator.principal(tenants[1])
        await revoke(elsewhere.store, principal)  # and the notice is lost
        clock.now += 4.99
        assert await here.authenticator.principal(tenants[1]) == principal
        assert len(here.reads) == 1
        clock.now += 0.02
        assert await here.authenticator.principal(tenants[1]) is None


async def test_the_lifetime_counts_from_before_the_read(config: GatewayConfig, tenants: Tenants, clock: Clock) -> None:
    async with worker(config, LocalNotices()) as here:

        async def slowly(read: Callable[[], Awaitable[Authentication | None]]) -> Authentication | None:
            found = await read()
            clock.now += 3
            return found

        here.around = slowly
        assert await here.authenticator.principal(tenants[1]) is not None
        clock.now += 2
        assert await here.authenticator.principal(tenants[1]) is not None
        assert len(here.reads) == 2


async def test_a_notice_invalidates_the_entry_at_once_in_every_process(
    config: GatewayConfig, tenants: Tenants, clock: Clock
) -> None:
    notices = LocalNotices()
    async with worker(config, notices) as here, worker(config, notices) as elsewhere:
        workers = (here, elsewhere)
        principals = [await each.authenticator.principal(tenants[1]) for each in workers]
        others = [await each.authenticator.principal(tenants[2]) for each in workers]
        await revoke(elsewhere.store, principals[0])
        assert [await each.authenticator.principal(tenants[1]) for each in workers] == [None, None]
        reads = len(here.reads)
        assert [await each.authenticator.principal(tenants[2]) for each in workers] == others
        assert len(here.reads) == reads, "a change of one tenant delays no other"


async def test_a_process_that_may_have_missed_a_notice_discards_all_entries(
    config: GatewayConfig, tenants: Tenants, clock: Clock
) -> None:
    notices = LocalNotices()
    async with worker(config, notices) as here:
        for key in tenants[1:]:
            assert await here.authenticator.principal(key) is not None
        notices.notify(None)
        for key in tenants[1:]:
            assert await here.authenticator.principal(key) is not None
        assert len(here.reads) == 4


async def test_a_late_read_revives_no_revoked_key(config: GatewayConfig, tenants: Tenants, clock: Clock) -> None:
    async with worker(config, LocalNotices()) as here:
        read_it, resume = asyncio.Event(), asyncio.Event()

        async def held_up(read: Callable[[], Awaitable[Authentication | None]]) -> Authentication | None:
            found = await read()
            read_it.set()
            await resume.wait()
            return found

        here.around = held_up
        early = asyncio.create_task(here.authenticator.principal(tenants[1]))
        await read_it.wait()
        here.around = None
        snapshot = await here.store.authenticate(tenants[1])
        assert snapshot is not None
        await revoke(here.store, snapshot.principal)
        assert await here.authenticator.principal(tenants[1]) is None
        resume.set()
        assert await early is not None  # it read before the revocation
        assert await here.authenticator.principal(tenants[1]) is None


async def test_callers_share_one_read(config: GatewayConfig, tenants: Tenants, clock: Clock) -> None:
    async with worker(config, LocalNotices()) as here:
        found = await asyncio.gather(*(here.authenticator.principal(tenants[1]) for _ in range(50)))
    assert len({id(principal) for principal in found}) == 1
    assert len(here.reads) == 1


async def test_without_a_database_cached_keys_work_until_the_bound(
    config: GatewayConfig, tenants: Tenants, clock: Clock
) -> None:
    async with worker(config, LocalNotices()) as here:
        assert await here.authenticator.principal(tenants[1]) is not None

        async def away(read: Callable[[], Awaitable[Authentication | None]]) -> Authentication | None:
            raise Unavailable("The database is away.")

        here.around = away
        clock.now += 4.9
        assert await here.authenticator.principal(tenants[1]) is not None
        with pytest.raises(Unavailable):
            await here.authenticator.principal(tenants[2])
        clock.now += 0.2
        with pytest.raises(Unavailable):
            await here.authenticator.principal(tenants[1])


async def test_a_hanging_database_counts_as_unavailable(
    config: GatewayConfig, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOKUP_SECONDS", 0.01)
    async with worker(config, LocalNotices()) as here:

        async def hangs(read: Callable[[], Awaitable[Authentication | None]]) -> Authentication | None:
            await asyncio.Event().wait()
            raise AssertionError

        here.around = hangs
        with pytest.raises(Unavailable):
            await here.authenticator.principal(tenants[1])


async def test_a_cache_entry_ends_when_its_key_expires(config: GatewayConfig, tenants: Tenants, clock: Clock) -> None:
    async with worker(config, LocalNotices()) as here:

        async def ends_soon(read: Callable[[], Awaitable[Authentication | None]]) -> Authentication | None:
            found = await read()
            assert found is not None
            return Authentication(found.principal, 1.5) if len(here.reads) == 1 else None

        here.around = ends_soon
        assert await here.authenticator.principal(tenants[1]) is not None
        clock.now += 1.4
        assert await here.authenticator.principal(tenants[1]) is not None
        clock.now += 0.2
        assert await here.authenticator.principal(tenants[1]) is None


async def test_unknown_keys_are_not_cached(config: GatewayConfig, tenants: Tenants, clock: Clock) -> None:
    async with worker(config, LocalNotices()) as here:
        for _ in range(2):
            assert await here.authenticator.principal(tenants[1][:-1]) is None
        assert len(here.reads) == 2


async def test_uses_are_written_in_batches(config: GatewayConfig, tenants: Tenants) -> None:
    async with worker(config, LocalNotices()) as here:
        for _ in range(10):
            principal = await here.authenticator.principal(tenants[1])
        assert isinstance(principal, TenantPrincipal)
        async with here.store.admin() as admin:
            assert (await admin.keys.get(principal.key_id)).last_used_at is None
        await here.key_use.write()
        async with here.store.admin() as admin:
            used = (await admin.keys.get(principal.key_id)).last_used_at
            assert used is not None
        await here.key_use.write()  # no call since
        async with here.store.admin() as admin:
            assert (await admin.keys.get(principal.key_id)).last_used_at == used


async def test_used_keys_move_to_the_new_secret(config: GatewayConfig, tenants: Tenants) -> None:
    """Their hashes are written with the times of their last use, not while their requests wait."""
    old, admin_key = config.secret_key, "chosen by the operator himself"
    async with worker(config, LocalNotices()) as here:
        await here.store.set_admin_key(admin_key)
    rotated = replace(config, secret_key=b"the next secret key", previous_secret_keys=(old,))
    without_old = replace(rotated, previous_secret_keys=())
    async with worker(rotated, LocalNotices()) as here:
        assert None not in [await here.authenticator.principal(key) for key in (tenants[1], admin_key)]
        async with worker(without_old, LocalNotices()) as there:
            assert await there.authenticator.principal(tenants[1]) is None, "nothing has been written yet"
        await here.key_use.write()
    async with worker(without_old, LocalNotices()) as there:
        found = [await there.authenticator.principal(key) is not None for key in (tenants[1], admin_key, tenants[2])]
        assert found == [True, True, False]


async def test_uses_that_could_not_be_written_are_kept(
    config: GatewayConfig, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker(config, LocalNotices()) as here:
        principal = await here.authenticator.principal(tenants[1])
        assert isinstance(principal, TenantPrincipal)

        @asynccontextmanager
        async def away(**options: object) -> AsyncIterator[Any]:
            raise Unavailable("The database is away.")
            yield

        with monkeypatch.context() as patched:
            patched.setattr(here.store, "admin", away)
            await here.key_use.write()
        await here.key_use.write()
        async with here.store.admin() as admin:
            assert (await admin.keys.get(principal.key_id)).last_used_at is not None
