"""What a worker says of the job that it holds. Once it is held no longer, nothing it says counts."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, Failure
from loragate.adapter_store.files.run_files import discard_run
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.jobs.job import JobStatus, Order
from loragate.adapter_store.tables.jobs import JobCheckpointRow, JobEventRow, JobRow

LEASE = timedelta(seconds=30)


class LeaseLost(Conflict):
    """Another worker has the job by now, or it has ended."""

    default_code = "lease_lost"


class JobLease:
    """Part of a TenantScope. Every method but `log_event` needs the lease, and raises LeaseLost without it."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def renew(self, job_id: str, worker: str) -> Order | None:
        """The lease runs from now; what the tenant wants meanwhile."""
        now = (await self._session.execute(select(database_now()))).scalar_one()
        wanted = await self._change(job_id, worker, held_until=now + LEASE)
        return None if wanted is None else Order(wanted)

    async def require(self, job_id: str, worker: str) -> None:
        """Nothing: whatever else is done in this transaction is done only if the job is held."""
        await self._change(job_id, worker)

    async def validated(self, job_id: str, worker: str, recipe: Mapping[str, Any], trained_tokens: int | None) -> None:
        """Its files are good: it waits for its turn to be trained. How many tokens that will be may be told later."""
        numbers = {"recipe": orjson.dumps(recipe).decode(), "trained_tokens": trained_tokens}
        await self._release(job_id, worker, JobStatus.QUEUED, **numbers)

    async def record_trained_tokens(self, job_id: str, worker: str, trained_tokens: int) -> None:
        """It has gone through so many tokens, which nobody knew beforehand."""
        await self._change(job_id, worker, trained_tokens=trained_tokens)

    async def progress(self, job_id: str, worker: str, step: int, steps: int | None) -> None:
        """So many steps are done, of so many if that is known. Whoever gets on has not died on it."""
        await self._change(job_id, worker, step=step, steps=steps, attempts=0)

    async def checkpoint(
        self, job_id: str, worker: str, step: int, metrics: Mapping[str, Any], model: str | None
    ) -> None:
        """One is kept; told again, the last word counts."""
        await self._change(job_id, worker)
        here = (JobCheckpointRow.job_id == job_id, JobCheckpointRow.step == step)
        told = {"metrics": orjson.dumps(metrics).decode(), "model": model}
        known = update(JobCheckpointRow).where(*here).values(**told).returning(JobCheckpointRow.id)
        if (await self._session.execute(known)).one_or_none() is None:
            new = {"job_id": job_id, "step": step, "id": f"ftckpt-{random_base62(24)}", "created_at": database_now()}
            await self._session.execute(insert(JobCheckpointRow).values(**new, **told))

    async def pause(self, job_id: str, worker: str) -> None:
        """As its tenant wanted."""
        await self._release(job_id, worker, JobStatus.PAUSED)

    async def requeue(self, job_id: str, worker: str) -> None:
        """The worker stops; the job waits for another."""
        row = await self._session.scalar(select(JobRow.recipe).where(JobRow.id == job_id))
        await self._release(job_id, worker, JobStatus.VALIDATING if row is None else JobStatus.QUEUED)

    async def requeue_for_waiting(self, job_id: str, worker: str) -> None:
        """It waits for something that is not there: whatever else waits for a turn has it first."""
        await self._release(job_id, worker, JobStatus.QUEUED, started_at=database_now())

    async def record_failure(self, job_id: str, worker: str) -> None:
        """What trained it has died; it waits to be tried again."""
        await self._release(job_id, worker, JobStatus.QUEUED, attempts=JobRow.attempts + 1)

    async def succeed(self, job_id: str, worker: str, fine_tuned_model: str, result_file: str | None) -> None:
        """Its adapter answers under this name."""
        ends = {"fine_tuned_model": fine_tuned_model, "result_file": result_file, "finished_at": database_now()}
        await self._release(job_id, worker, JobStatus.SUCCEEDED, **ends)

    async def fail(self, job_id: str, worker: str, error: Failure) -> None:
        """It has ended without an adapter."""
        told = {"error_code": error.code, "error_message": error.message, "error_param": error.param}
        await self._release(job_id, worker, JobStatus.FAILED, **told, finished_at=database_now())

    async def cancelled(self, job_id: str, worker: str) -> None:
        """As its tenant wanted."""
        await self._release(job_id, worker, JobStatus.CANCELLED, finished_at=database_now())

    async def log_event(
        self, job_id: str, message: str, *, level: str = "info", type: str = "message", data: Mapping[str, Any] = {}
    ) -> None:
        """An event."""
        counted = update(JobRow).where(JobRow.id == job_id).values(last_event=JobRow.last_event + 1)
        number = (await self._session.execute(counted.returning(JobRow.last_event))).scalar_one()
        await self._session.execute(
            insert(JobEventRow).values(
                job_id=job_id,
                number=number,
                created_at=database_now(),
                level=level,
                type=type,
                message=message,
                data=orjson.dumps(data).decode(),
            )
        )

    async def _release(self, job_id: str, held_by: str, status: JobStatus, **values: object) -> None:
        free = {"status": status, "worker": None, "held_until": None, "wanted": None, "attempts": 0}
        if status.ended:
            await discard_run(self._session, job_id)
        await self._change(job_id, held_by, **{**free, **values})

    async def _change(self, job_id: str, held_by: str, /, **values: object) -> str | None:
        """What its tenant wanted before."""
        held = (JobRow.id == job_id, JobRow.worker == held_by, JobRow.held_until > database_now())
        row = (await self._session.execute(select(JobRow.wanted).where(*held).with_for_update())).one_or_none()
        if row is None:
            raise LeaseLost("This worker does not hold the job any more.")
        if values:
            await self._session.execute(update(JobRow).where(*held).values(**values))
        wanted: str | None = row.wanted
        return wanted
