"""The runs of one tenant, and the commands that its clients send to them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, and_, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import Page
from loragate.adapter_store.errors import Invalid, NotFound
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.training import TrainingCommandRow, TrainingRunRow
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.training.objects import (
    CommandKind,
    ErrorCategory,
    Loss,
    Outcome,
    RequestStatus,
    RunStatus,
    TrainingRun,
    request_id_of,
    run_id_of,
)
from loragate.adapter_store.training.rows import as_text, outcome_of, run_of
from loragate.adapter_store.usage.training import is_minute_used_up

MAX_WAITING = 4096  # commands of one run
_USED_PRECISION = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to create. `settings` are those of its adapter."""

    session_id: str
    number: int
    key_id: str
    rank: int | None
    settings: Mapping[str, Any]
    user_metadata: Mapping[str, Any]


class TrainingRuns:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def create(self, wanted: NewRun, kind: CommandKind, request: bytes, payload: bytes) -> str:
        """Create a run, whose command 0 is the `request` itself; return the request's id. The same request again is
        the same run. Raise Invalid for another request with this number, or if the tenant has too many runs."""
        run_id = run_id_of(wanted.session_id, wanted.number)
        if await self._has(run_id):
            return await self.submit(run_id, 0, kind, request, payload)
        await self._check_room()
        now = await current_time(self._session)
        values = {
            "id": run_id,
            "session_id": wanted.session_id,
            "key_id": wanted.key_id,
            "status": RunStatus.ACTIVE,
            "rank": wanted.rank,
            "settings": as_text(dict(wanted.settings)),
            "user_metadata": as_text(dict(wanted.user_metadata)),
            "next_seq": 0,
            "gradients_failed": False,
            "steps": 0,
            "trained_tokens": 0,
            "created_at": now,
            "used_at": now,
        }
        await self._session.execute(insert(TrainingRunRow).values(**values))
        await self._audit.record("training_run.create", f"training_run:{run_id}", after={"rank": wanted.rank})
        return await self.submit(run_id, 0, kind, request, payload)

    async def submit(
        self,
        run_id: str,
        seq: int,
        kind: CommandKind,
        request: bytes,
        payload: bytes | None = None,
        *,
        rejected: str | None = None,
    ) -> str:
        """Record a command durably and return its request id; a trainer runs it when its turn has come.

        The same command again is the same request. One that is `rejected`, with this error, uses up its number. Raise
        NotFound, Invalid: other content under a number that was used, a run that has ended, too many that wait.
        """
        run, known = await self._run_and_command(run_id, seq)
        digest = hashlib.sha256(kind.encode() + b"\0" + request).digest()
        if known is not None:
            if known.digest != digest:
                words = f"The request {seq} of this model was sent before with other content."
                raise Invalid(words, code="seq_id_reused", param="seq_id")
            return request_id_of(run_id, seq)
        if run.status is RunStatus.ENDED:
            raise Invalid("The training run has ended with its session.", code="run_ended", param="model_id")
        if seq < run.next_seq or seq > run.next_seq + MAX_WAITING:
            words = f"`seq_id` is {seq}, but the next command of this model is {run.next_seq}."
            raise Invalid(words, code="invalid_seq_id", param="seq_id")
        values: dict[str, Any] = {
            "run_id": run_id,
            "seq": seq,
            "kind": kind,
            "digest": digest,
            "payload": payload if payload is not None else request,
            "status": RequestStatus.WAITING,
            "created_at": database_now(),
        }
        if rejected is not None:
            failed = {"status": RequestStatus.FAILED, "error": rejected, "category": ErrorCategory.USER}
            values |= failed | {"payload": None, "finished_at": database_now()}
        await self._session.execute(insert(TrainingCommandRow).values(**values))
        if utc_now() - run.used_at > _USED_PRECISION:
            used = update(TrainingRunRow).where(TrainingRunRow.id == run_id).values(used_at=database_now())
            await self._session.execute(used)
        return request_id_of(run_id, seq)

    async def get(self, run_id: str) -> TrainingRun:
        """Return a run. Raise NotFound."""
        row = None
        if len(run_id) <= 128:
            row = await self._session.scalar(select(TrainingRunRow).where(TrainingRunRow.id == run_id))
        if row is None:
            raise _not_found()
        return run_of(row)

    async def are_rate_limited(self) -> bool:
        """Return whether the tenant's runs wait for the next minute's tokens."""
        return await is_minute_used_up(self._session, await limits_of(self._session))

    async def list(self, *, offset: int, limit: int) -> tuple[Sequence[TrainingRun], int]:
        """Return runs, newest first, and the number of all."""
        row = TrainingRunRow
        query = select(row).order_by(row.created_at.desc(), row.id.desc()).offset(offset).limit(limit)
        total = await self._session.scalar(select(func.count(row.id))) or 0
        return [run_of(each) for each in await self._session.scalars(query)], total

    async def of_session(self, session_id: str) -> Sequence[str]:
        """Return the ids of a session's runs."""
        query = select(TrainingRunRow.id).where(TrainingRunRow.session_id == session_id)
        return (await self._session.scalars(query.order_by(TrainingRunRow.created_at))).all()

    async def page(self, *, after: str | None, limit: int) -> Page[TrainingRun]:
        """Return runs, newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, TrainingRunRow, after=after, limit=limit)
        return Page(tuple(map(run_of, page)), page.has_more)

    async def losses(self, run_id: str, limit: int) -> Sequence[Loss]:
        """Return the losses of the last `limit` forward_backwards, in order."""
        row = TrainingCommandRow
        query = select(row.seq, row.loss, row.tokens).where(row.run_id == run_id, row.loss.is_not(None))
        found = (await self._session.execute(query.order_by(row.seq.desc()).limit(limit))).all()
        return [Loss(each.seq, each.loss, each.tokens or 0) for each in reversed(found)]

    async def outcomes(self, run_id: str, numbers: Iterable[int]) -> Mapping[int, Outcome]:
        """Return what is known of commands, by their numbers."""
        row = TrainingCommandRow
        query = select(row).where(row.run_id == run_id, row.seq.in_(list(numbers)))
        return {each.seq: outcome_of(each) for each in await self._session.scalars(query)}

    async def _has(self, run_id: str) -> bool:
        return await self._session.scalar(select(TrainingRunRow.id).where(TrainingRunRow.id == run_id)) is not None

    async def _run_and_command(self, run_id: str, seq: int) -> tuple[TrainingRun, TrainingCommandRow | None]:
        found = None
        if len(run_id) <= 128:
            found = (await self._session.execute(_run_with_command(run_id, seq))).one_or_none()
        if found is None:
            raise _not_found()
        return run_of(found[0]), found[1]

    async def _check_room(self) -> None:
        most = (await limits_of(self._session)).max_training_runs
        if most is None:
            return
        row = TrainingRunRow
        active = select(func.count(row.id)).where(row.status.in_([RunStatus.ACTIVE, RunStatus.PAUSED]))
        if (await self._session.scalar(active) or 0) >= most:
            raise Invalid(
                f"This tenant may have {most} training runs (max_training_runs); finish the session of another first.",
                code="too_many_training_runs",
            )


def _not_found() -> NotFound:
    return NotFound("The training run does not exist.", code="run_not_found", param="model_id")


def _run_with_command(run_id: str, seq: int) -> Select[TrainingRunRow, TrainingCommandRow]:
    """Select a run, and its command with this number if there is one."""
    run, command = TrainingRunRow, TrainingCommandRow
    here = and_(command.tenant_id == run.tenant_id, command.run_id == run.id, command.seq == seq)
    return select(run, command).outerjoin(command, here).where(run.id == run_id)
