"""The ledger after the chaos run, against what clients were told."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow

from .chaos_clients import Told


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    id: str
    tenant_id: str
    request_id: str
    prompt_tokens: int
    completion_tokens: int
    outcome: str


async def entries(database_url: str) -> list[Entry]:
    columns = [getattr(UsageRecordRow, name) for name in Entry.__dataclass_fields__]
    database = Database(database_url)
    try:
        async with database.operator() as session:
            return [Entry(*row) for row in await session.execute(select(*columns))]
    finally:
        await database.close()


async def sums(database_url: str) -> dict[str, Counter[str]]:
    """By width and tenant: requests and tokens."""
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
    """The same from single rows."""
    found: Counter[str] = Counter()
    for entry in ledger:
        found[f"{entry.tenant_id} requests"] += 1
        found[f"{entry.tenant_id} tokens"] += entry.prompt_tokens + entry.completion_tokens
    return found


def disagreements(ledger: Iterable[Entry], told: Iterable[Told]) -> list[str]:
    """In words; none where the ledger balances."""
    by_request: dict[str, list[Entry]] = {}
    for entry in ledger:
        by_request.setdefault(entry.request_id, []).append(entry)
    return [words for each in told if (words := _disagreement(each, by_request.get(each.id, [])))]


def _disagreement(told: Told, found: list[Entry]) -> str:
    said = f"{told.way} {told.id} ({told.outcome}, told {told.usage or told.pieces})"
    if len(found) > 1:
        return f"{said} is counted {len(found)} times: {found}"
    if not found:
        return f"{said} is not in the ledger" if told.usage or told.pieces else ""
    [entry] = found
    billed = (entry.prompt_tokens, entry.completion_tokens)
    if entry.tenant_id != told.tenant_id:
        return f"{said} is billed to somebody else: {entry}"
    if told.usage is not None and billed != told.usage:
        return f"{said} is billed otherwise: {entry}"
    if entry.completion_tokens < told.pieces:
        return f"{said} is billed less: {entry}"
    if told.outcome[:3] in ("429", "503") and not told.pieces and any(billed):
        return f"{said} is billed, and got nothing: {entry}"
    return ""
