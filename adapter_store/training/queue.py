"""The runs of all tenants that have commands to run, from which trainers claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, delete, exists, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.database.clock import current_time, database_later, database_now
from loragate.adapter_store.jobs.lease import LEASE
from loragate.adapter_store.tables.tenants import TenantRow
from loragate.adapter_store.tables.training import (
    SampleRow,
    TrainingCheckpointRow,
    TrainingCommandRow,
    TrainingRunRow,
    TrainingSessionRow,
)
from loragate.adapter_store.training.objects import (
    GAP_PATIENCE,
    Command,
    CommandKind,
    ErrorCategory,
    RequestStatus,
    RunStatus,
    TrainingRun,
)
from loragate.adapter_store.training.rows import run_of
from loragate.adapter_store.training.samplers import SAMPLE_LEASE

_CLAIMABLE = (RunStatus.ACTIVE, RunStatus.FAILED)


@dataclass(frozen=True, slots=True)
class RunClaim:
    """A claimed run, of a tenant with this weight."""

    tenant_id: str
    weight: float
    run: TrainingRun


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run and its next commands."""

    tenant_id: str
    run: TrainingRun
    commands: list[Command]


@dataclass(frozen=True, slots=True)
class WaitingRuns:
    """The runs of a worker that wait, and whether there are others, which no trainer holds."""

    held: Sequence[WaitingRun]
    others: bool


class TrainingQueue:
    """Part of a writing AdminScope. Trainers on several machines may claim runs at the same time."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def claim(self, worker: str, limit: int) -> Sequence[RunClaim]:
        """Claim runs that have a command to run and that no trainer holds, those that wait longest first."""
        run, tenant = TrainingRunRow, TenantRow
        query = (
            select(run, tenant.weight)
            .join(tenant, and_(tenant.id == run.tenant_id, tenant.deleted_at.is_(None)))
            .where(run.status.in_(_CLAIMABLE), _is_free(), _has_command())
            .order_by(run.used_at)
            .limit(limit)
        )
        claims = []
        until = await current_time(self._session) + LEASE
        for found, weight in (await self._session.execute(query)).tuples().all():
            taken = update(run).where(run.tenant_id == found.tenant_id, run.id == found.id, _is_free())
            taken = taken.values(worker=worker, held_until=until)
            if (await self._session.execute(taken.returning(run.id))).first() is not None:
                claims.append(RunClaim(found.tenant_id, weight, run_of(found)))
        return claims

    async def waiting(self, worker: str, limit: int) -> WaitingRuns:
        """Return the worker's runs that have a command to run, with up to `limit` commands whose predecessors are all
        here; rejected ones are among them. Payloads of forward_backwards, which may be large, are not read."""
        found = await self._session.execute(_WAITING, {"worker": worker, "limit": limit})
        held: dict[tuple[str, str], WaitingRun] = {}
        others = False
        for row, seq, kind, status, content in found.tuples():
            if row.worker != worker:
                others = True
                continue
            waiting = held.setdefault((row.tenant_id, row.id), WaitingRun(row.tenant_id, run_of(row), []))
            if seq == row.next_seq + len(waiting.commands):
                waiting.commands.append(Command(seq, CommandKind(kind), content or b"", RequestStatus(status)))
        return WaitingRuns(tuple(held.values()), others)

    async def release_all(self, worker: str) -> None:
        """Give back what a process of this name held before it died."""
        row = TrainingRunRow
        await self._session.execute(update(row).where(row.worker == worker).values(worker=None, held_until=None))

    async def has_gaps(self) -> bool:
        """Return whether `fail_gaps` would find a run."""
        return (await self._session.execute(_behind_gaps(await self._gap_time()).limit(1))).first() is not None

    async def fail_gaps(self) -> int:
        """Fail the commands that wait for one that will not come; return the number of their runs."""
        run, command = TrainingRunRow, TrainingCommandRow
        found = (await self._session.execute(_behind_gaps(await self._gap_time()))).all()
        for each in found:
            its = command.tenant_id == each.tenant_id, command.run_id == each.id, command.seq > each.next_seq
            error = f"The request {each.next_seq} of this model never arrived, so later ones cannot be run."
            failed = {"status": RequestStatus.FAILED, "error": error, "category": ErrorCategory.USER, "payload": None}
            waiting = command.status == RequestStatus.WAITING
            await self._session.execute(update(command).where(*its, waiting).values(**failed))
            last = await self._session.scalar(select(func.max(command.seq)).where(*its))
            passed = {"next_seq": (last or 0) + 1, "gradients_failed": True}
            here = run.tenant_id == each.tenant_id, run.id == each.id
            await self._session.execute(update(run).where(*here).values(**passed))
        return len(found)

    async def _gap_time(self) -> datetime:
        return await current_time(self._session) - GAP_PATIENCE

    async def renew_samples(self, worker: str) -> None:
        """Hold the requests for samples that a gateway runs for longer."""
        row = SampleRow
        held = row.worker == worker, row.status == RequestStatus.WAITING
        await self._session.execute(update(row).where(*held).values(held_until=database_later(SAMPLE_LEASE)))

    async def tenants_with_expired_sessions(self, before: datetime) -> Sequence[str]:
        """Return the tenants that have sessions without a heartbeat since `before`."""
        row = TrainingSessionRow
        query = select(row.tenant_id).where(row.finished_at.is_(None), row.seen_at < before).distinct()
        return (await self._session.scalars(query)).all()

    async def tenants_with_expired_checkpoints(self) -> Sequence[str]:
        """Return the tenants that have checkpoints whose time is over."""
        row = TrainingCheckpointRow
        query = select(row.tenant_id).where(row.expires_at <= database_now()).distinct()
        return (await self._session.scalars(query)).all()

    async def purge(self, before: datetime, limit: int) -> int:
        """Remove up to `limit` commands of runs that ended before `before`; return their number."""
        run, command = aliased(TrainingRunRow), TrainingCommandRow
        ended = exists().where(run.tenant_id == command.tenant_id, run.id == command.run_id, run.ended_at < before)
        keys = (command.tenant_id, command.run_id, command.seq)
        some = select(*keys).where(ended).limit(limit)
        removed = delete(command).where(tuple_(*keys).in_(some)).returning(command.seq)
        return len((await self._session.execute(removed)).all())


def _behind_gaps(before: datetime) -> Select[str, str, int]:
    """Select the runs whose commands have waited since `before` for one that has not arrived."""
    run, command = TrainingRunRow, TrainingCommandRow
    waits = command.seq > run.next_seq, command.status == RequestStatus.WAITING, command.created_at < before
    query = select(run.tenant_id, run.id, run.next_seq)
    return query.where(run.status == RunStatus.ACTIVE, exists().where(_of_run(command), *waits), ~_has_command())


def _of_run(command: type[TrainingCommandRow]) -> ColumnElement[bool]:
    return and_(command.tenant_id == TrainingRunRow.tenant_id, command.run_id == TrainingRunRow.id)


def _has_command() -> ColumnElement[bool]:
    """Return the condition that the next command of a run is here."""
    command = aliased(TrainingCommandRow)
    of_run = command.tenant_id == TrainingRunRow.tenant_id, command.run_id == TrainingRunRow.id
    return exists().where(*of_run, command.seq == TrainingRunRow.next_seq)


def _is_free() -> ColumnElement[bool]:
    row = TrainingRunRow
    return or_(row.held_until.is_(None), row.held_until <= database_now())


def _waiting() -> Select[TrainingRunRow, int, str, str, bytes | None]:
    """Select the commands to run of a `worker`, `limit` of a run, and those of runs that are free."""
    run, command, tenant = TrainingRunRow, TrainingCommandRow, TenantRow
    alive = exists().where(tenant.id == run.tenant_id, tenant.deleted_at.is_(None))
    mine = and_(run.worker == bindparam("worker"), run.status != RunStatus.PAUSED)
    free = and_(run.status.in_(_CLAIMABLE), _is_free(), alive)
    first = TrainingRunRow.next_seq
    is_next = and_(command.seq >= first, command.seq < first + bindparam("limit"))
    payload = case((command.kind != CommandKind.FORWARD_BACKWARD, command.payload))
    return (
        select(run, command.seq, command.kind, command.status, payload)
        .join(command, and_(_of_run(command), is_next))
        .where(or_(mine, free), _has_command())
        .order_by(run.tenant_id, run.id, command.seq)
    )


_WAITING = _waiting()
