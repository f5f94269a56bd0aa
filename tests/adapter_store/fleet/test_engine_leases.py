"""The registry of engines: leases by the database's clock."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.fleet.engine_leases import LEASE, EngineLease
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.engines import EngineLeaseRow

LLAMA, QWEN = "sha256:llama", "sha256:qwen"
FIRST = EngineLease(id="first", target="10.0.0.1:50100", base_digest=LLAMA, adapter_slots=16, certificate_name="gpu")
SECOND = EngineLease(id="second", target="127.0.0.1:50101", base_digest=LLAMA, adapter_slots=8, machine="here")


async def grow_older(store: Store, by: timedelta) -> None:
    """Move the ends of all leases, which takes less time than to wait for them."""
    database: Database = store._database
    async with database.operator(write=True) as session:
        for row in (await session.scalars(select(EngineLeaseRow))).all():
            older = update(EngineLeaseRow).where(EngineLeaseRow.id == row.id)
            await session.execute(older.values(expires_at=row.expires_at - by))


async def test_a_lease_is_taken_renewed_and_given_back(store: Store) -> None:
    leases = store.engine_leases
    assert await leases.all() == ()
    await leases.renew(SECOND, "b")
    await leases.renew(FIRST, "a")
    assert await leases.all() == (FIRST, SECOND)
    busy = replace(FIRST, running=3, waiting=7)
    await leases.renew(busy, "a")
    assert await leases.all() == (busy, SECOND)
    await leases.give_back("first", "another process")
    assert await leases.all() == (busy, SECOND)
    await leases.give_back("first", "a")
    assert await leases.all() == (SECOND,)


async def test_a_lease_that_is_not_renewed_expires_and_is_dropped(store: Store) -> None:
    leases = store.engine_leases
    await leases.renew(FIRST, "a")
    await grow_older(store, LEASE)
    assert await leases.all() == (replace(FIRST, expired=True),)
    await leases.renew(FIRST, "a")
    assert await leases.all() == (FIRST,)
    await grow_older(store, timedelta(hours=2))
    await leases.renew(SECOND, "b")
    assert await leases.all() == (SECOND,)


async def test_an_id_belongs_to_one_address_while_its_lease_lasts(store: Store) -> None:
    leases = store.engine_leases
    await leases.renew(FIRST, "a")
    with pytest.raises(Conflict, match="has the id first already"):
        await leases.renew(replace(FIRST, target="10.0.0.9:1"), "b")
    await leases.renew(FIRST, "restarted")  # at once, without waiting for the end of the lease
    await leases.give_back("first", "a")
    assert await leases.all() == (FIRST,)
    await grow_older(store, LEASE)
    moved = replace(FIRST, target="10.0.0.9:1")
    await leases.renew(moved, "b")
    assert await leases.all() == (moved,)


async def test_engines_of_another_base_model_are_refused(store: Store) -> None:
    leases = store.engine_leases
    await leases.renew(FIRST, "a")
    with pytest.raises(Conflict, match="first serves the base model sha256:llama, this one serves sha256:qwen"):
        await leases.renew(replace(SECOND, base_digest=QWEN), "b")
    await leases.renew(replace(FIRST, base_digest=QWEN), "a")  # it was restarted with another model
    await grow_older(store, LEASE)
    await leases.renew(SECOND, "b")
    assert [each.id for each in await leases.all() if not each.expired] == ["second"]
