"""Conversion between rows and stored responses, and sums of rows."""

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.responses.response import ResponseStatus, ResponseSummary, StorageUse, StoredResponse
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import ConversationRow, StoredResponseRow

_FACTS = tuple(field.name for field in fields(ResponseSummary))
SUMMARY = tuple(getattr(StoredResponseRow, name) for name in _FACTS)
"""The columns of a summary, without what is sealed."""


def summary_of(row: Any) -> ResponseSummary:
    """Return a summary of a row that has at least these columns."""
    return ResponseSummary(**_facts(row))


def response_of(row: StoredResponseRow, seal: TenantSeal) -> StoredResponse:
    return StoredResponse(**_facts(row), document=seal.open(row.sealed_response, response_place(row.id)))


def request_place(response_id: str) -> str:
    """Return the place of a sealed request."""
    return f"stored_responses/{response_id}/request"


def response_place(response_id: str) -> str:
    """Return the place of a sealed response object."""
    return f"stored_responses/{response_id}/response"


def events_place(response_id: str, number: int) -> str:
    """Return the place of sealed events."""
    return f"response_events/{response_id}/{number}"


def expiry(now: datetime, lifetime: timedelta | None) -> datetime | None:
    """Return when something that is made or used now expires."""
    return None if lifetime is None else now + lifetime


async def storage_use(session: AsyncSession) -> StorageUse:
    """Return what the session's tenant stores, or all of them in an operator's session."""
    queries = [select(func.count(), func.sum(row.size_bytes)) for row in (StoredResponseRow, ConversationRow)]
    (responses, response_bytes), (talks, talk_bytes) = [(await session.execute(query)).one() for query in queries]
    return StorageUse(responses, talks, int(response_bytes or 0) + int(talk_bytes or 0))


def _facts(row: Any) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in _FACTS}
    return facts | {"status": ResponseStatus(row.status)}
