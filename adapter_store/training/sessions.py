"""The sessions of one tenant's training clients."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.errors import Invalid, NotFound
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.training import SampleRow, SamplerRow, TrainingRunRow, TrainingSessionRow
from loragate.adapter_store.training.objects import SESSION_LIFETIME, RunStatus, TrainingSession
from loragate.adapter_store.training.rows import as_text, session_of


class TrainingSessions:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def create(
        self,
        key_id: str,
        *,
        sdk_version: str,
        tags: Sequence[str],
        user_metadata: Mapping[str, Any],
        display_name: str | None,
    ) -> TrainingSession:
        """Create a session. Raise Invalid if the tenant has too many."""
        await self._check_room()
        session_id, now = f"ts_{random_base62(24)}", await current_time(self._session)
        values = {
            "id": session_id,
            "key_id": key_id,
            "sdk_version": sdk_version,
            "display_name": display_name,
            "tags": as_text(list(tags)),
            "user_metadata": as_text(dict(user_metadata)),
            "created_at": now,
            "seen_at": now,
        }
        await self._session.execute(insert(TrainingSessionRow).values(**values))
        await self._audit.record("training_session.create", f"training_session:{session_id}", after={})
        return await self.get(session_id)

    async def get(self, session_id: str) -> TrainingSession:
        row = None
        if could_be_id(session_id):
            row = await self._session.scalar(select(TrainingSessionRow).where(TrainingSessionRow.id == session_id))
        if row is None:
            raise NotFound("The session does not exist.", code="session_not_found", param="session_id")
        return session_of(row)

    async def require(self, session_id: str) -> TrainingSession:
        """Return a session that has not ended. Raise NotFound, Invalid (`session_ended`)."""
        found = await self.get(session_id)
        if found.finished_at is not None:
            raise Invalid(
                "The session has ended, because its client finished it or sent no heartbeat for "
                f"{SESSION_LIFETIME.total_seconds() / 60:.0f} minutes; create a new one.",
                code="session_ended",
                param="session_id",
            )
        return found

    async def list(self, *, offset: int, limit: int) -> Sequence[TrainingSession]:
        """Return sessions, newest first."""
        row = TrainingSessionRow
        query = select(row).order_by(row.created_at.desc(), row.id.desc()).offset(offset).limit(limit)
        return [session_of(each) for each in await self._session.scalars(query)]

    async def heartbeat(self, session_id: str) -> bool:
        """Record a heartbeat; return whether the session has not ended. Raise NotFound."""
        row = TrainingSessionRow
        here = update(row).where(row.id == session_id, row.finished_at.is_(None))
        if (await self._session.execute(here.values(seen_at=database_now()).returning(row.id))).first() is not None:
            return True
        await self.get(session_id)
        return False

    async def finish(self, session_id: str, reason: str) -> None:
        """End a session: its runs end, its unnamed samplers and their weights go. The first reason stays. Raise
        NotFound."""
        if (await self.get(session_id)).finished_at is None:
            await self._end(TrainingSessionRow.id == session_id, reason)

    async def expire(self, before: datetime) -> int:
        """End the sessions without a heartbeat since `before`; return their number."""
        return await self._end(TrainingSessionRow.seen_at < before, "expired")

    async def _end(self, which: ColumnElement[bool], reason: str) -> int:
        row, run, sampler, sample = TrainingSessionRow, TrainingRunRow, SamplerRow, SampleRow
        ended = update(row).where(which, row.finished_at.is_(None)).returning(row.id)
        ids = [
            found.id
            for found in await self._session.execute(ended.values(finished_at=database_now(), finish_reason=reason))
        ]
        of_them = run.session_id.in_(ids), run.status.in_([RunStatus.ACTIVE, RunStatus.PAUSED])
        await self._session.execute(update(run).where(*of_them).values(status=RunStatus.ENDED, ended_at=database_now()))
        samplers = select(sampler.id).where(sampler.session_id.in_(ids))
        await self._session.execute(delete(sample).where(sample.sampler_id.in_(samplers)))
        await self._session.execute(delete(sampler).where(sampler.session_id.in_(ids)))
        for session_id in ids:
            target = f"training_session:{session_id}"
            await self._audit.record("training_session.finish", target, after={"reason": reason})
        return len(ids)

    async def _check_room(self) -> None:
        most = (await limits_of(self._session)).max_training_sessions
        if most is None:
            return
        query = select(TrainingSessionRow.id).where(TrainingSessionRow.finished_at.is_(None)).limit(most)
        if len((await self._session.scalars(query)).all()) >= most:
            raise Invalid(
                f"This tenant may have {most} training sessions (max_training_sessions); finish one, or wait until "
                "one expires.",
                code="too_many_training_sessions",
            )
