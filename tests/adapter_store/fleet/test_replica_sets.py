"""The sizes of replica sets, as processes exchange them."""

from sqlalchemy import select, update

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.fleet.replica_sets import EXPIRY
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.engines import ReplicaSetsRow

A, B = ("acme", "sha256:a"), ("acme", "sha256:b")


async def test_each_process_reads_the_largest_sizes_of_the_others(store: Store) -> None:
    sets = store.replica_sets
    assert await sets.exchange("first", {A: 2}) == {}
    assert await sets.exchange("second", {A: 3, B: 2}) == {A: 2}
    assert await sets.exchange("third", {B: 4}) == {A: 3, B: 2}
    assert await sets.exchange("first", {}) == {A: 3, B: 4}
    assert await sets.exchange("second", {}) == {B: 4}


async def test_what_a_process_no_longer_says_expires(store: Store) -> None:
    sets = store.replica_sets
    await sets.exchange("ended", {A: 2})
    database: Database = store._database
    async with database.operator(write=True) as session:
        (row,) = (await session.scalars(select(ReplicaSetsRow))).all()
        await session.execute(update(ReplicaSetsRow).values(expires_at=row.expires_at - EXPIRY))
    assert await sets.exchange("second", {}) == {}
