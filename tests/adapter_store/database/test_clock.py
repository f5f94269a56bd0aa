"""The database's clock, in the forms that its columns have."""

from datetime import timedelta

from sqlalchemy import select

from loragate.adapter_store.database.clock import current_time, database_later, database_now
from loragate.adapter_store.database.database import Database


async def test_a_later_time_is_in_the_form_of_the_current_one(database_url: str) -> None:
    delay = timedelta(seconds=61.5)
    database = Database(database_url)
    async with database.operator() as session:
        before = await current_time(session)
        found = (await session.execute(select(database_later(delay)))).scalar_one()
        after = await current_time(session)
        assert before + delay <= found <= after + delay
        later = select(database_later(timedelta(0)) <= database_now(), database_later(delay) > database_now())
        assert (await session.execute(later)).one() == (True, True)
    await database.close()
