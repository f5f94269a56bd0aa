"""After a restoration no ended key is valid, and no version number is given a second time."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store.errors import Conflict, Unavailable
from loragate.adapter_store.journal import Journal
from loragate.adapter_store.tables.adapters import AdapterRow
from tests.adapter_store.backup.places import Place, new_key, publish_version

on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@on_sqlite
async def test_what_ended_after_the_backup_stays_ended(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    kept, revoked, rotated, expiring = [await new_key(world.store, world.acme.id) for _ in range(4)]
    of_tenant = await new_key(world.store, world.other.id)
    async with world.store.admin(write=True) as admin:
        named = await admin.admin_keys.create("backup")
    backup = await take_backup()
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(revoked.key.id)
        await admin.keys.rotate(rotated.key.id)
        await admin.keys.rotate(expiring.key.id, grace_seconds=3600)
        await admin.admin_keys.revoke(named.key.id)
        await admin.tenants.delete(world.other.id)
        soon = (await admin.keys.get(expiring.key.id)).expires_at
    epoch = await new_database.restore(backup)
    restored = await opened(new_database)
    assert await restored.authenticate(kept.secret) is not None
    for key in (revoked, rotated, of_tenant, named):
        assert await restored.authenticate(key.secret) is None
    async with restored.admin() as admin:
        found = (await admin.keys.get(expiring.key.id)).expires_at
    assert found == soon
    assert (epoch.revoked, epoch.deleted_tenants) == (4, ("other",))
    assert {key.id for key in epoch.valid_keys} == {kept.key.id, expiring.key.id}


@on_sqlite
async def test_a_replaced_admin_key_stays_replaced(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    old, new = "an-old-admin-key-of-24-characters", "a-new-admin-key-of-24-characters"
    await world.store.set_admin_key(old)
    backup = await take_backup()
    await world.store.set_admin_key(new)
    assert (await new_database.restore(backup)).admin_key_removed
    restored = await opened(new_database)
    assert await restored.authenticate(old) is None
    await restored.ensure_admin_key(new)
    assert await restored.authenticate(new) is not None


@on_sqlite
async def test_without_the_journal_the_operator_decides_about_keys(
    world: Any, elsewhere: Place, lost: Place, take_backup: Any, opened: Any, tmp_path: Path
) -> None:
    kept, revoked = [await new_key(world.store, world.acme.id) for _ in range(2)]
    backup = await take_backup()
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(revoked.key.id)
    with pytest.raises(Conflict, match="--journal"):
        await elsewhere.restore(backup)
    assert not (tmp_path / "restored-blobs").exists()
    epoch = await elsewhere.restore(backup, keep_keys=True)
    assert {key.id for key in epoch.valid_keys} == {kept.key.id, revoked.key.id}
    assert epoch.version_floor == 2000, "a thousand numbers are left out for each hour that began"
    epoch = await elsewhere.restore(backup, replace=True, revoke_keys=True, journal_url=lost.blob_url)
    assert (epoch.number, epoch.revoked, epoch.valid_keys) == (2, 2, ())
    again = await elsewhere.restore(backup, replace=True)  # the journal was copied by the restoration before
    assert again.valid_keys == (), "a later restoration must not revive what an earlier one revoked"


async def test_a_revocation_without_a_blob_store_is_in_the_journal_later(
    world: Any, lost: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_key(world.store, world.acme.id)

    async def unavailable(*_: Any) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", unavailable)
        async with world.store.admin(write=True) as admin:
            await admin.keys.revoke(key.key.id)
    assert await world.store.authenticate(key.secret) is None
    journal = Journal(world.store.blobs)
    assert key.key.id not in (await journal.read()).ends["api_key"]
    await world.store.sweep()
    assert key.key.id in (await journal.read()).ends["api_key"]


@on_sqlite
async def test_no_version_number_is_given_twice(world: Any, new_database: Place, take_backup: Any) -> None:
    """Neither of an adapter that the backup has, nor of a name that was used first after it, nor at a second try."""
    await world.publish("support", seed=1)
    backup = await take_backup()
    given = {
        await publish_version(world.store, world, name, seed) for name in ("support", "newer") for seed in range(2, 5)
    }
    for _ in range(2):
        await new_database.restore(backup, replace=True)
        restored = await new_database.open()
        numbers = {
            await publish_version(restored, world, name, seed) for name in ("support", "newer") for seed in (7, 8)
        }
        await restored.close()
        assert not numbers & given
        given |= numbers
    assert max(given) < 10_000


@on_sqlite
async def test_numbers_far_above_those_of_the_backup_are_known(
    world: Any, new_database: Place, take_backup: Any
) -> None:
    await world.publish("support", seed=1)
    backup = await take_backup()
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterRow).values(last_version=2499))  # as 2498 publications would
    assert await publish_version(world.store, world, "support", 2) == 2500
    assert (await new_database.restore(backup)).version_floor >= 3000
