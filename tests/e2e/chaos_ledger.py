"""The ledger after the chaos run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from history import Row
from sqlalchemy import select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    id: str
    tenant_id: str
    key_id: str
    request_id: str
    adapter: str | None
    adapter_version: int | None
    started_at: datetime
    prompt_tokens: int
    completion_tokens: int
    generated_tokens: int | None
    outcome: str

    def observed(self) -> Row:
        """Return the row as a part of a history."""
        return Row(
            request_id=self.request_id,
            tenant_id=self.tenant_id,
            key_id=self.key_id,
            adapter=self.adapter,
            version=self.adapter_version,
            started=self.started_at.timestamp(),
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            generated_tokens=self.generated_tokens or 0,
        )


async def entries(database_url: str) -> list[Entry]:
    columns = [getattr(UsageRecordRow, name) for name in Entry.__dataclass_fields__]
    database = Database(database_url)
    try:
        async with database.operator() as session:
            return [Entry(*row) for row in await session.execute(select(*columns))]
    finally:
        await database.close()


async def sums(database_url: str) -> dict[str, Counter[str]]:
    """Return the requests and tokens by width and tenant."""
    found: dict[str, Counter[str]] = {"hour": Counter(), "day": Counter()}
    database = Database(database_url)
    try:
        async with database.operator() as session:
            for row in (await session.execute(select(UsageSumRow))).scalars():
                found[row.width][f"{row.tenant_id} requests"] += row.requests
                found[row.width][f"{row.tenant_id} tokens"] += row.prompt_tokens + row.completion_tokens
    finally:
        await database.close()
    return found


def sums_of(ledger: Iterable[Entry]) -> Counter[str]:
    """Return the requests and tokens by tenant, summed from the ledger's rows."""
    found: Counter[str] = Counter()
    for entry in ledger:
        found[f"{entry.tenant_id} requests"] += 1
        found[f"{entry.tenant_id} tokens"] += entry.prompt_tokens + entry.completion_tokens
    return found
