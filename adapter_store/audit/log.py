"""The audit log: every administrative action, written in the action's transaction.

Events cannot be changed, and are removed only by `purge`, by their age; the database rejects anything else (see the
migrations).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import ColumnElement, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.tables.audit import AuditPurgeRow, AuditRow
from loragate.adapter_store.timestamps import utc_now

Facts = Mapping[str, Any]
_UNRECORDED = frozenset({"updated_at", "last_used_at"})


@dataclass(frozen=True)
class AuditEvent:
    """One recorded change: its actor, action and object. `before` and `after` have the changed fields, never a secret;
    None: no object."""

    id: str
    created_at: datetime
    actor: str
    action: str  # `<kind>.<verb>`
    target: str  # `<kind>:<id>`
    tenant_id: str | None
    before: Facts | None
    after: Facts | None
    request_id: str | None


@dataclass(frozen=True)
class RecordedChange:
    """An event that this process has written, in a transaction that may still fail."""

    action: str
    target: str
    moment: datetime
    after: Facts | None


class AuditLog:
    """Writes as one actor; reads what its session may see. Adds the tenants whose data changes to `changed`, and what
    it writes to `written`."""

    def __init__(
        self,
        session: AsyncSession,
        actor: Actor,
        changed: set[str] | None = None,
        written: list[RecordedChange] | None = None,
    ) -> None:
        self._session = session
        self._actor = actor
        self._changed = set() if changed is None else changed
        self._written = [] if written is None else written

    @property
    def actor(self) -> str:
        """The actor's name."""
        return self._actor.name

    async def record(
        self, action: str, target: str, *, tenant: str = "", before: Facts | None = None, after: Facts | None = None
    ) -> None:
        """Record an action. `tenant` is the owner of the changed data; a tenant's session sets it itself."""
        now = utc_now()
        await self._session.execute(
            insert(AuditRow).values(
                id=new_id("au"),
                tenant_id=tenant,
                created_at=now,
                actor=self._actor.name,
                action=action,
                target=target,
                before=_json(before),
                after=_json(after),
                request_id=self._actor.request_id,
            )
        )
        self._changed.add(tenant)
        self._written.append(RecordedChange(action, target, now, after))

    async def record_change(self, action: str, target: str, tenant: str, before: object, after: object) -> None:
        """Record the changed fields between two dataclasses; nothing if they are equal."""
        old, new = facts_of(before), facts_of(after)
        changed = [name for name in new if new[name] != old[name]]
        if changed:
            was, became = ({name: facts[name] for name in changed} for facts in (old, new))
            await self.record(action, target, tenant=tenant, before=was, after=became)

    async def purge(self, before: datetime, limit: int) -> int:
        """Remove up to `limit` events from before `before`; return their number. Needs the operator's session."""
        row, purged = AuditRow, AuditPurgeRow
        old = (await self._session.scalars(select(row.id).where(row.created_at < before).limit(limit))).all()
        if old:
            await self._session.execute(delete(purged))
            await self._session.execute(insert(purged).values(purged_before=before))
            await self._session.execute(delete(row).where(row.id.in_(old)))
            facts = {"before": before, "events": len(old)}
            await self.record("audit_log.purge", "installation:audit_log", after=facts)
        return len(old)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[AuditEvent]:
        """Return events in [`since`, `until`), newest first; `after` is the id of the last one seen."""
        if tenant_id is not None and tenant_of(self._session) not in (None, tenant_id):
            return Page((), has_more=False)
        wanted = ((AuditRow.tenant_id, tenant_id), (AuditRow.actor, actor), (AuditRow.action, action))
        where: list[ColumnElement[bool]] = [column == value for column, value in wanted if value is not None]
        if since is not None:
            where.append(AuditRow.created_at >= since)
        if until is not None:
            where.append(AuditRow.created_at < until)
        page = await newest_first(self._session, AuditRow, *where, after=after, limit=limit)
        return Page(tuple(_event_of(row) for row in page), page.has_more)


_LONGEST_TEXT = 500
_SHOWN_TEXT = 200


def _shortened(fact: Any) -> Any:
    """Return a fact without its long texts: changes of them, repeated, would fill the log."""
    if isinstance(fact, str) and len(fact) > _LONGEST_TEXT:
        digest = hashlib.sha256(fact.encode(errors="surrogatepass")).hexdigest()
        return f"{fact[:_SHOWN_TEXT]}… ({len(fact)} characters, sha256:{digest})"
    if isinstance(fact, Mapping):
        return {name: _shortened(value) for name, value in fact.items()}
    return fact


def facts_of(noun: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that the log records."""
    return {name: value for name, value in asdict(noun).items() if name not in _UNRECORDED}


def _json(facts: Facts | None) -> str | None:
    return None if facts is None else orjson.dumps(_shortened(facts)).decode()


def _event_of(row: AuditRow) -> AuditEvent:
    return AuditEvent(
        id=row.id,
        created_at=row.created_at,
        actor=row.actor,
        action=row.action,
        target=row.target,
        tenant_id=row.tenant_id or None,
        before=None if row.before is None else orjson.loads(row.before),
        after=None if row.after is None else orjson.loads(row.after),
        request_id=row.request_id or None,
    )
