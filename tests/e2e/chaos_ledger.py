"""Comparison of the ledger after the chaos run with the responses that clients received."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow

from .chaos_clients import RequestRecord


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


def disagreements(ledger: Iterable[Entry], records: Iterable[RequestRecord]) -> list[str]:
    """Return a description of each disagreement; an empty list if the ledger balances."""
    by_request: dict[str, list[Entry]] = {}
    for entry in ledger:
        by_request.setdefault(entry.request_id, []).append(entry)
    return [text for each in records if (text := _disagreement(each, by_request.get(each.id, [])))]


def _disagreement(record: RequestRecord, found: list[Entry]) -> str:
    request = f"{record.interface} {record.id} ({record.outcome}, received {record.usage or record.pieces})"
    if len(found) > 1:
        return f"{request} is counted {len(found)} times: {found}"
    if not found:
        return f"{request} is not in the ledger" if record.usage or record.pieces else ""
    [entry] = found
    billed = (entry.prompt_tokens, entry.completion_tokens)
    if entry.tenant_id != record.tenant_id:
        return f"{request} is billed to another tenant: {entry}"
    if record.usage is not None and billed != record.usage:
        return f"{request} is billed differently: {entry}"
    if entry.completion_tokens < record.pieces:
        return f"{request} is billed too little: {entry}"
    if record.outcome[:3] in ("429", "503") and not record.pieces and any(billed):
        return f"{request} is billed without a response: {entry}"
    return ""
