"""The lease of a job: a worker's reports, which have no effect once it has lost the lease."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.errors import Conflict, Failure
from loragate.adapter_store.files.run_files import discard_run
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.jobs.job import ORDERED, JobStatus, Order
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.jobs import JobCheckpointRow, JobEventRow, JobRow
from loragate.adapter_store.usage.training import TrainingUsage, add_training, training_totals

LEASE = timedelta(seconds=30)


class LeaseLost(Conflict):
    """Another worker has the job, or it has ended."""

    default_code = "lease_lost"


class JobLease:
    """Part of a TenantScope. Every method but `log_event` and `exceeded_by` needs the lease, and raises LeaseLost
    without it.

    A method that returns the job to the queue executes the tenant's command instead, if there is one that the worker
    has not seen. `killed` counts an attempt: the trainer had to be killed.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def renew(self, job_id: str, worker: str) -> Order | None:
        """Renew the lease; return the tenant's command, if there is one."""
        now = await current_time(self._session)
        wanted = await self._change(job_id, worker, held_until=now + LEASE)
        return None if wanted is None else Order(wanted)

    async def require(self, job_id: str, worker: str) -> None:
        """Raise LeaseLost unless the worker holds the job, so that the transaction takes effect only then."""
        await self._change(job_id, worker)

    async def validated(self, job_id: str, worker: str, recipe: Mapping[str, Any], trained_tokens: int | None) -> None:
        """Queue the job for training: its files are valid. The number of tokens may be recorded later."""
        numbers = {"recipe": orjson.dumps(recipe).decode(), "trained_tokens": trained_tokens}
        await self._release(job_id, worker, JobStatus.QUEUED, **numbers)

    async def record_trained_tokens(self, job_id: str, worker: str, trained_tokens: int) -> None:
        """Record the number of trained tokens, if it was not known before training."""
        await self._change(job_id, worker, trained_tokens=trained_tokens)

    async def progress(self, job_id: str, worker: str, step: int, steps: int | None) -> None:
        """Record the steps done, of `steps` if known, and reset the attempts."""
        await self._change(job_id, worker, step=step, steps=steps, attempts=0)

    async def exceeded_by(self, tokens: int) -> str | None:
        """Return a sentence about the limit that a job on this many tokens exceeds, or None. Needs no lease."""
        limit = (await limits_of(self._session)).max_job_training_tokens
        if limit is None or tokens <= limit:
            return None
        return (
            f"This tenant may use {limit} tokens in a job (max_job_training_tokens), and this one needs {tokens}: "
            "lower `n_epochs`, or train on fewer examples."
        )

    async def meter(
        self, job_id: str, worker: str, used: TrainingUsage, *, base_model: str, price: int | None
    ) -> str | None:
        """Add to the usage ledger the time, and those of the job's tokens so far that it does not have yet, at `price`
        each. Return a sentence about a limit that is used up now, or None."""
        await self._change(job_id, worker)
        query = select(JobRow.metered_tokens, JobRow.metered_ms).where(JobRow.id == job_id)
        tokens, milliseconds = (await self._session.execute(query)).one()
        new = TrainingUsage(max(0, used.tokens - tokens), used.milliseconds)
        job = TrainingUsage(tokens + new.tokens, milliseconds + new.milliseconds)
        now = await current_time(self._session)
        if new.tokens or new.milliseconds:
            await self._change(job_id, worker, metered_tokens=job.tokens, metered_ms=job.milliseconds)
            amount = None if price is None else price * new.tokens
            await add_training(self._session, new, job_id=job_id, base_model=base_model, amount=amount, now=now)
        return (await training_totals(self._session, now, job)).exceeded(await limits_of(self._session))

    async def checkpoint(
        self, job_id: str, worker: str, step: int, metrics: Mapping[str, Any], model: str | None
    ) -> None:
        """Record a checkpoint; a second record of the same step replaces the first."""
        await self._change(job_id, worker)
        here = (JobCheckpointRow.job_id == job_id, JobCheckpointRow.step == step)
        values = {"metrics": orjson.dumps(metrics).decode(), "model": model}
        known = update(JobCheckpointRow).where(*here).values(**values).returning(JobCheckpointRow.id)
        if (await self._session.execute(known)).one_or_none() is None:
            new = {"job_id": job_id, "step": step, "id": f"ftckpt-{random_base62(24)}", "created_at": database_now()}
            await self._session.execute(insert(JobCheckpointRow).values(**new, **values))

    async def pause(self, job_id: str, worker: str, *, killed: bool = False) -> None:
        """Pause the job, as its tenant requested."""
        await self._release(job_id, worker, JobStatus.PAUSED, attempts=_attempts(killed))

    async def requeue(self, job_id: str, worker: str, *, killed: bool = False) -> None:
        """Return the job to the queue, because the worker stops."""
        row = await self._session.scalar(select(JobRow.recipe).where(JobRow.id == job_id))
        status = JobStatus.VALIDATING if row is None else JobStatus.QUEUED
        await self._release(job_id, worker, status, attempts=_attempts(killed))

    async def step_aside(self, job_id: str, worker: str, *, killed: bool = False) -> None:
        """Return the job to the end of the queue: others go first."""
        now = database_now()
        await self._release(job_id, worker, JobStatus.QUEUED, started_at=now, attempts=_attempts(killed))

    async def record_failure(self, job_id: str, worker: str) -> None:
        """Return the job to the queue after its trainer died, and count the attempt."""
        await self._release(job_id, worker, JobStatus.QUEUED, attempts=_attempts(killed=True))

    async def succeed(
        self,
        job_id: str,
        worker: str,
        fine_tuned_model: str,
        result_file: str | None,
        evaluation: Mapping[str, Any] | None = None,
    ) -> None:
        """Record success: the adapter is published under this name."""
        ends = {
            "fine_tuned_model": fine_tuned_model,
            "result_file": result_file,
            "evaluation": None if evaluation is None else orjson.dumps(evaluation).decode(),
            "finished_at": database_now(),
        }
        await self._release(job_id, worker, JobStatus.SUCCEEDED, **ends)

    async def fail(self, job_id: str, worker: str, error: Failure) -> None:
        """Record failure: the job has ended without an adapter."""
        values = {"error_code": error.code, "error_message": error.message, "error_param": error.param}
        await self._release(job_id, worker, JobStatus.FAILED, **values, finished_at=database_now())

    async def cancelled(self, job_id: str, worker: str) -> None:
        """Cancel the job, as its tenant requested."""
        await self._release(job_id, worker, JobStatus.CANCELLED, finished_at=database_now())

    async def log_event(
        self, job_id: str, message: str, *, level: str = "info", type: str = "message", data: Mapping[str, Any] = {}
    ) -> None:
        """Add an event."""
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
        wanted = await self._change(job_id, held_by)
        if wanted is not None and not status.ended:
            status = ORDERED[Order(wanted)]
            values |= {"finished_at": database_now()} if status.ended else {}
        free = {"status": status, "worker": None, "held_until": None, "wanted": None, "attempts": 0}
        if status.ended:
            await discard_run(self._session, job_id)
        await self._change(job_id, held_by, **{**free, **values})

    async def _change(self, job_id: str, held_by: str, /, **values: object) -> str | None:
        """Change the job if the worker holds it; return the tenant's command before the change."""
        held = (JobRow.id == job_id, JobRow.worker == held_by, JobRow.held_until > database_now())
        row = (await self._session.execute(select(JobRow.wanted).where(*held).with_for_update())).one_or_none()
        if row is None:
            raise LeaseLost("This worker does not hold the job any more.")
        if values:
            await self._session.execute(update(JobRow).where(*held).values(**values))
        wanted: str | None = row.wanted
        return wanted


def _attempts(killed: bool) -> object:
    return JobRow.attempts + 1 if killed else 0
