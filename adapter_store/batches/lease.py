"""The lease of a batch: a worker's results, which have no effect once it has lost the lease."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.batches.batch import Batch, BatchError, BatchStatus, LineResult
from loragate.adapter_store.batches.rows import batch_of, errors_text
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.jobs.lease import LEASE, LeaseLost
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.batches import BatchLineRow, BatchRow
from loragate.adapter_store.tables.usage import UsageSumRow
from loragate.adapter_store.usage.periods import Width, floor
from loragate.adapter_store.usage.record import BATCH
from loragate.adapter_store.usage.settlement import UsageSettlement

_REMOVED = 5000  # results in one transaction


class BatchLease:
    """Part of a TenantScope. Every method but those that read results needs the lease, and raises LeaseLost without
    it."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def renew(self, batch_id: str, worker: str) -> Batch:
        """Renew the lease; return the batch, which its tenant may have cancelled."""
        await self._change(batch_id, worker, held_until=await current_time(self._session) + LEASE)
        return await self._get(batch_id)

    async def start(self, batch_id: str, worker: str, total: int) -> Batch:
        """Record that the file is valid, and that its lines are run from now on."""
        begun = {"status": BatchStatus.IN_PROGRESS, "in_progress_at": database_now(), "total": total}
        await self._change(batch_id, worker, **await self._unless_cancelled(batch_id, worker, begun))
        return await self._get(batch_id)

    async def add(self, batch_id: str, worker: str, results: Sequence[LineResult]) -> None:
        """Add results and their usage together. Results that are there already, because a commit succeeded and seemed
        to fail, change nothing."""
        await self._change(batch_id, worker)
        known = await self.finished(batch_id, (each.number for each in results))
        new = [each for each in results if each.number not in known]
        if not new:
            return
        rows = [
            {"batch_id": batch_id, "number": each.number, "failed": each.failed, "result": each.result} for each in new
        ]
        await self._session.execute(insert(BatchLineRow), rows)
        used = [each.usage for each in new if each.usage is not None]
        await UsageSettlement(self._session).settle(used)
        failed = sum(each.failed for each in new)
        await self._change(
            batch_id,
            worker,
            failed=BatchRow.failed + failed,
            completed=BatchRow.completed + len(new) - failed,
            prompt_tokens=BatchRow.prompt_tokens + sum(each.prompt_tokens for each in used),
            completion_tokens=BatchRow.completion_tokens + sum(each.completion_tokens for each in used),
            cached_tokens=BatchRow.cached_tokens + sum(each.cached_tokens for each in used),
        )

    async def finished(self, batch_id: str, numbers: Iterable[int]) -> set[int]:
        """Return those of the lines that have a result."""
        row = BatchLineRow
        query = select(row.number).where(row.batch_id == batch_id, row.number.in_(list(numbers)))
        return set((await self._session.scalars(query)).all())

    async def results(self, batch_id: str, *, failed: bool, after: int, limit: int) -> Sequence[LineResult]:
        """Return up to `limit` results, in the order of their lines, behind the line `after`."""
        row = BatchLineRow
        query = select(row.number, row.failed, row.result).where(
            row.batch_id == batch_id, row.failed == failed, row.number > after
        )
        found = await self._session.execute(query.order_by(row.number).limit(limit))
        return [LineResult(*each) for each in found]

    async def max_lines(self) -> int | None:
        """Return how many lines the tenant's batches may have; None: any number."""
        return (await limits_of(self._session)).max_batch_lines

    async def tokens_left(self) -> int | None:
        """Return how many tokens the tenant's batches may still use today, in UTC; None: any number."""
        most = (await limits_of(self._session)).batch_tokens_per_day
        if most is None:
            return None
        row, today = UsageSumRow, floor(await current_time(self._session), Width.DAY)
        used = func.sum(row.computed_prompt_tokens + row.cached_tokens + row.generated_tokens)
        query = select(used).where(row.width == Width.DAY.value, row.start == today, row.endpoint.startswith(BATCH))
        return max(0, most - int(await self._session.scalar(query) or 0))

    async def finalize(
        self, batch_id: str, worker: str, ending: BatchStatus, errors: Sequence[BatchError] = ()
    ) -> Batch:
        """Record that no more lines are run: once its files are written, the batch ends as `ending`, or as cancelled
        if its tenant has ordered that."""
        status = await self._change(batch_id, worker)
        changes: dict[str, object] = {"ending": ending, "errors": errors_text(errors), "finalizing_at": database_now()}
        if status == BatchStatus.CANCELLING:
            changes = {"ending": BatchStatus.CANCELLED}
        else:
            changes["status"] = BatchStatus.FINALIZING
        await self._change(batch_id, worker, **changes)
        return await self._get(batch_id)

    async def record_file(self, batch_id: str, worker: str, file_id: str, *, failed: bool) -> Batch:
        """Record the file of the results, or of those that `failed`, in the transaction that makes it."""
        await self._change(batch_id, worker, **{"error_file" if failed else "output_file": file_id})
        return await self._get(batch_id)

    async def remove_results(self, batch_id: str, worker: str) -> bool:
        """Remove some of the results, which are in files now; return whether there may be more."""
        await self._change(batch_id, worker)
        row = BatchLineRow
        some = select(row.number).where(row.batch_id == batch_id).order_by(row.number).limit(_REMOVED)
        removed = delete(row).where(row.batch_id == batch_id, row.number.in_(some)).returning(row.number)
        return len((await self._session.execute(removed)).all()) == _REMOVED

    async def end(self, batch_id: str, worker: str, status: BatchStatus, errors: Sequence[BatchError] = ()) -> None:
        """Record the end of the batch."""
        ended: dict[str, object] = {
            "status": status,
            "finished_at": database_now(),
            "worker": None,
            "held_until": None,
            "ending": None,
        }
        if errors:
            ended["errors"] = errors_text(errors)
        await self._change(batch_id, worker, **ended)

    async def release(self, batch_id: str, worker: str) -> None:
        """Return the batch to the queue."""
        await self._change(batch_id, worker, worker=None, held_until=None)

    async def wait(self, batch_id: str, worker: str, reason: str, until: datetime | timedelta) -> None:
        """Return the batch to the queue, from which no worker claims it `until` then. `reason` is a sentence."""
        then = until if isinstance(until, datetime) else await current_time(self._session) + until
        status = await self._change(batch_id, worker)
        waits = {} if status == BatchStatus.CANCELLING else {"waits_for": reason, "waits_until": then}
        await self._change(batch_id, worker, worker=None, held_until=None, **waits)

    async def _unless_cancelled(self, batch_id: str, worker: str, values: dict[str, object]) -> dict[str, object]:
        status = await self._change(batch_id, worker)
        return {"total": values["total"]} if status == BatchStatus.CANCELLING else values

    async def _get(self, batch_id: str) -> Batch:
        query = select(BatchRow).where(BatchRow.id == batch_id).execution_options(populate_existing=True)
        return batch_of((await self._session.scalars(query)).one())

    async def _change(self, batch_id: str, held_by: str, /, **values: object) -> str:
        """Change the batch if the worker holds it; return its status before the change."""
        held = (BatchRow.id == batch_id, BatchRow.worker == held_by, BatchRow.held_until > database_now())
        status = await self._session.scalar(select(BatchRow.status).where(*held).with_for_update())
        if status is None:
            raise LeaseLost("This worker does not hold the batch any more.")
        if values:
            await self._session.execute(update(BatchRow).where(*held).values(**values))
        return status
