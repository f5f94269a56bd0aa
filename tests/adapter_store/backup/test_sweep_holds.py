"""The sweep removes nothing during a backup, nor after a restoration before the operator confirms."""

from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store import sweep as sweep_module
from loragate.adapter_store.backup.restore import confirm, last_restoration
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.sweep_holds import hold_sweep
from loragate.adapter_store.tables.recovery import SweepHoldRow
from tests.adapter_store.backup.places import Place

NOW = timedelta(0)
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@on_sqlite
async def test_bytes_newer_than_the_backup_are_kept_until_the_operator_confirms(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    await world.publish("support", seed=1)
    backup = await take_backup()
    newer = await world.publish("support", seed=2)
    await new_database.restore(backup)
    restored = await opened(new_database)
    report = await restored.sweep(NOW, NOW)
    assert (report.held, report.adapters) == (True, 0)
    assert await restored.open_adapter(world.acme.id, newer.digest)
    database = Database(new_database.database_url)
    try:
        last = await last_restoration(database)
        assert last is not None
        assert (last.epoch, last.confirmed_at) == (1, None)
        assert await confirm(database)
        assert not await confirm(database), "it is confirmed already"
    finally:
        await database.close()
    report = await restored.sweep(NOW, NOW)
    assert (report.held, report.adapters) == (False, 1)
    with pytest.raises(LookupError):
        await restored.open_adapter(world.acme.id, newer.digest)


async def test_a_backup_holds_the_sweep_also_one_that_runs(
    world: Any, lost: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        await world.publish(f"name-{seed}", seed=seed)
    async with world.adapters(write=True) as adapters:
        for seed in (1, 2):
            await adapters.delete(f"name-{seed}")
    database = Database(lost.database_url)
    try:
        async with hold_sweep(database, "bk_1") as still_held:
            assert (await world.store.sweep(NOW, NOW)).held
            await still_held()
        async with AsyncExitStack() as stack:
            remove = sweep_module._remove_digest

            async def remove_then_hold(*what: Any) -> bool:
                removed = await remove(*what)
                if removed:
                    await stack.enter_async_context(hold_sweep(database, "bk_2"))
                return removed

            monkeypatch.setattr(sweep_module, "_remove_digest", remove_then_hold)
            assert (await world.store.sweep(NOW, NOW)).adapters == 1
    finally:
        await database.close()


@on_sqlite
async def test_a_hold_that_expired_fails_the_backup(world: Any, lost: Place) -> None:
    database = world.store._database
    async with hold_sweep(database, "bk_1") as still_held:
        async with database.operator(write=True) as session:
            await session.execute(update(SweepHoldRow).values(expires_at=datetime.fromisoformat("2020-01-01T00Z")))
        assert not (await world.store.sweep(NOW, NOW)).held, "an expired hold holds nothing"
        with pytest.raises(Conflict, match="start the backup again"):
            await still_held()
