"""Conversion between rows and stored responses."""

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from loragate.adapter_store.responses.response import ResponseStatus, ResponseSummary, StoredResponse
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import StoredResponseRow

_FACTS = tuple(field.name for field in fields(ResponseSummary))


def summary_of(row: StoredResponseRow) -> ResponseSummary:
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


def _facts(row: StoredResponseRow) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in _FACTS}
    return facts | {"status": ResponseStatus(row.status)}
