"""Secret keys are replaced while what was made with them stays valid."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from loragate.adapter_store.auth.credentials import Plausibility
from loragate.adapter_store.auth.secret_key import SecretKeys, secret_id
from loragate.adapter_store.auth.secret_use import SecretUse, secret_uses
from loragate.adapter_store.errors import Conflict, WrongSecretKey
from loragate.adapter_store.idempotency import IdempotencyClaim, StoredResponse
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.tenants import ApiKeyRow
from loragate.adapter_store.timestamps import utc_now
from tests.adapter_store.conftest import SECRET_KEY as OLD

NEW = b"the next secret key of the tests"
Opens = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture
def opens(database_url: str, blob_url: str) -> Opens:
    @asynccontextmanager
    async def opened(primary: bytes, *previous: bytes) -> AsyncIterator[Store]:
        store = await Store.open(database_url, blob_url, primary, previous_secret_keys=previous)
        try:
            yield store
        finally:
            await store.close()

    return opened


async def make_key(world: Any, store: Store | None = None, **options: Any) -> str:
    async with (store or world.store).admin(write=True) as admin:
        return str((await admin.keys.create(world.acme.id, **options)).secret)


async def make_admin_key(store: Store) -> str:
    async with store.admin(write=True) as admin:
        return (await admin.admin_keys.create("alice")).secret


async def uses(store: Store, *secrets: bytes) -> dict[str, SecretUse]:
    async with store._database.operator() as session:
        return {each.id: each for each in await secret_uses(session, SecretKeys(secrets[0], secrets[1:]))}


async def is_valid(store: Store, *keys: str) -> bool:
    found = {await store.authenticate(key) is not None for key in keys}
    assert len(found) == 1
    return found.pop()


async def secret_of(store: Store, key: str) -> str | None:
    async with store._database.operator() as session:
        query = select(ApiKeyRow.secret_id).where(ApiKeyRow.id == key.split("-")[1])
        return (await session.execute(query)).scalar_one()


async def test_keys_outlive_a_rotation_and_then_the_old_secret(world: Any, opens: Opens) -> None:
    keys = [await make_key(world), await make_admin_key(world.store), await world.store.ensure_admin_key(None)]
    async with opens(NEW, OLD) as store:
        assert {store.check_key(key) for key in keys} == {Plausibility.CHECKED}, "no look-up is needed for this"
        assert await is_valid(store, *keys)
        async with opens(NEW) as without_old:
            assert not await is_valid(without_old, *keys), "nothing has been written yet"
        await store.renew_key_hashes()
    async with opens(NEW) as without_old:
        assert {without_old.check_key(key) for key in keys} == {Plausibility.CHECKED}
        assert await is_valid(without_old, *keys)


async def test_an_unused_key_depends_on_the_old_secret(world: Any, opens: Opens) -> None:
    used, unused = await make_key(world), await make_key(world)
    now = utc_now()
    await make_key(world, expires_at=now + timedelta(days=1))
    async with world.store.admin(write=True) as admin:
        revoked = await admin.keys.create(world.acme.id)
        await admin.keys.revoke(revoked.key.id)
        gone = await admin.tenants.create("gone")
        await admin.keys.create(gone.id)
        await admin.tenants.delete(gone.id)
        await admin.admin_keys.create("alice")
    await world.store.ensure_admin_key(None)
    async with opens(NEW, OLD) as store:
        before = await uses(store, NEW, OLD)
        assert await is_valid(store, used)
        await store.renew_key_hashes()
        after = await uses(store, NEW, OLD)
    assert list(before) == [secret_id(NEW), secret_id(OLD)]
    old, new = before[secret_id(OLD)], before[secret_id(NEW)]
    assert (old.state, old.is_current, old.api_keys, old.admin_keys) == ("accepted", False, 3, 2)
    assert (new.state, new.is_current, new.api_keys, new.admin_keys) == ("primary", True, 0, 0)
    assert old.since is not None
    assert new.since is not None
    assert old.since < new.since
    assert (after[secret_id(OLD)].api_keys, after[secret_id(NEW)].api_keys) == (2, 1)
    assert (await secret_of(world.store, used), await secret_of(world.store, unused)) == (
        secret_id(NEW),
        secret_id(OLD),
    )


async def test_replicas_change_one_by_one(world: Any, opens: Opens) -> None:
    """First all accept the new secret, then each in turn makes it its primary one."""
    key = await make_key(world)
    async with opens(OLD, NEW) as late, opens(NEW, OLD) as early:
        made = [key, await make_key(world, late), await make_key(world, early)]
        for store in (late, early, late):
            assert await is_valid(store, *made)
            await store.renew_key_hashes()
        assert {await secret_of(early, each) for each in made} == {secret_id(NEW)}, "the late one undoes nothing"
        async with opens(OLD, NEW) as restarted:
            assert await is_valid(restarted, *made)
            await restarted.renew_key_hashes()
        assert {await secret_of(early, each) for each in made} == {secret_id(NEW)}
    with pytest.raises(WrongSecretKey, match="LORAGATE_PREVIOUS_SECRET_KEYS"):
        async with opens(OLD):
            pass


async def test_keys_from_before_secrets_had_ids(world: Any, opens: Opens) -> None:
    key = await make_key(world)
    admin_key = await make_admin_key(world.store)

    async def forget() -> None:
        async with world.store._database.operator(write=True) as session:
            for kind in (ApiKeyRow, AdminKeyRow):
                await session.execute(update(kind).values(secret_id=None))

    await forget()
    assert await is_valid(world.store, key, admin_key)
    async with opens(NEW, OLD) as store:
        assert await secret_of(store, key) == secret_id(OLD), "there was no other one before the first rotation"
        await forget()
        assert [each.api_keys for each in (await uses(store, NEW, OLD)).values()] == [1, 1]
        assert await is_valid(store, key, admin_key)
        await store.renew_key_hashes()
        found = (await uses(store, NEW, OLD)).values()
        assert [(each.api_keys, each.admin_keys) for each in found] == [(1, 1), (0, 0)]


async def test_a_hash_that_changed_meanwhile_is_not_overwritten(world: Any, opens: Opens) -> None:
    key = await make_key(world)
    async with opens(NEW, OLD) as store:
        assert await is_valid(store, key)
        async with store._database.operator(write=True) as session:
            await session.execute(update(ApiKeyRow).values(key_hash=b"another"))
        await store.renew_key_hashes()
        assert not await is_valid(store, key)


async def test_the_given_admin_key_is_moved_at_the_start(world: Any, opens: Opens) -> None:
    given = "chosen by the operator himself"
    await world.store.set_admin_key(given)
    async with opens(NEW, OLD) as store:
        await store.set_admin_key(given)
        async with store.admin() as admin:
            actions = [event.action for event in await admin.audit.list()]
    assert actions.count("admin_key.set") == 1, "it is the same key"
    assert actions.count("secret_key.rotate") == 1
    async with opens(NEW) as store:
        assert await is_valid(store, given)


async def test_stored_responses_are_replayed_after_a_rotation(world: Any, opens: Opens) -> None:
    async def claimed(store: Store, key: str, request: bytes = b"request") -> Any:
        async with store.tenant(world.acme.id, write=True) as scope:
            return await scope.idempotency.claim(key, request)

    async def completed(store: Store, claim: Any) -> None:
        async with store.tenant(world.acme.id, write=True) as scope:
            await scope.idempotency.complete(claim, StoredResponse(201, b"made"))

    await completed(world.store, await claimed(world.store, "answered"))
    running = await claimed(world.store, "running")
    async with opens(NEW, OLD) as store:
        assert await claimed(store, "answered") == StoredResponse(201, b"made")
        for key in ("answered", "running"):
            with pytest.raises(Conflict, match="another request"):
                await claimed(store, key, b"another")
        with pytest.raises(Conflict, match="still running"):
            await claimed(store, "running")
        await completed(world.store, running)
        assert await claimed(store, "running") == StoredResponse(201, b"made")
        fresh = await claimed(store, "fresh")
        assert isinstance(fresh, IdempotencyClaim)
        await completed(store, fresh)
    async with opens(OLD, NEW) as late:
        assert await claimed(late, "fresh") == StoredResponse(201, b"made")


async def test_retiring_a_secret_revokes_what_depends_on_it(world: Any, opens: Opens) -> None:
    used, unused = await make_key(world), await make_key(world)
    admin_key = await make_admin_key(world.store)
    async with opens(NEW, OLD) as store:
        assert await is_valid(store, used)
        await store.renew_key_hashes()
        async with store.admin(write=True) as admin:
            lost = await admin.secrets.retire(secret_id(OLD))
        assert lost.api_keys == (unused.split("-")[1],)
        assert lost.admin_keys == (admin_key.split("-")[1],)
        assert await is_valid(store, used)
        assert not await is_valid(store, unused, admin_key)
        assert list(await uses(store, NEW)) == [secret_id(NEW)]
