"""Training runs of all tenants, for the operator."""

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.tables.training import TrainingRunRow
from loragate.adapter_store.training.objects import OwnedRun, RunStatus
from loragate.adapter_store.training.rows import run_of

_BEFORE = {
    RunStatus.PAUSED: (RunStatus.ACTIVE,),
    RunStatus.ACTIVE: (RunStatus.PAUSED,),
    RunStatus.ENDED: (RunStatus.ACTIVE, RunStatus.PAUSED),
}


class AdminTrainingRuns:
    """Part of an AdminScope; within a tenant, it sees that tenant's runs only."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def list(
        self, *, status: RunStatus | None = None, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[OwnedRun]:
        """Return runs, newest first; `after` is the id of the last one seen."""
        where: list[ColumnElement[bool]] = [] if status is None else [TrainingRunRow.status == status]
        page = await newest_first(self._session, TrainingRunRow, *where, after=after, limit=limit)
        return Page(tuple(OwnedRun(row.tenant_id, run_of(row)) for row in page), page.has_more)

    async def change(self, run_id: str, status: RunStatus) -> OwnedRun:
        """Pause a run, resume it, or end it. Raise NotFound, and Conflict if its status does not allow that."""
        row = TrainingRunRow
        found = await self._session.scalar(select(row).where(row.id == run_id)) if len(run_id) <= 128 else None
        if found is None:
            raise NotFound("The training run does not exist.", code="run_not_found", param="run_id")
        if found.status not in _BEFORE[status]:
            raise Conflict(f"The training run is {found.status}.", code="run_not_changed", param="run_id")
        changed = {"status": status, "ended_at": database_now() if status is RunStatus.ENDED else None}
        await self._session.execute(update(row).where(row.id == run_id).values(**changed))
        before, target = {"status": found.status}, f"training_run:{run_id}"
        await self._audit.record(
            "training_run.update", target, tenant=found.tenant_id, before=before, after={"status": status}
        )
        after = await self._session.scalar(select(row).where(row.id == run_id))
        assert after is not None
        return OwnedRun(after.tenant_id, run_of(after))
