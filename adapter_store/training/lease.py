"""The lease of a run: what a trainer records, which has no effect once it has lost the lease."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time, database_later, database_now
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.jobs.lease import LEASE, LeaseLost
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.training import TrainingCheckpointRow, TrainingCommandRow, TrainingRunRow
from loragate.adapter_store.training.checkpoints import here
from loragate.adapter_store.training.objects import (
    CheckpointPath,
    Command,
    CommandKind,
    Outcome,
    RequestStatus,
    Sampler,
    TrainingRun,
)
from loragate.adapter_store.training.rows import as_text, outcome_columns, run_of
from loragate.adapter_store.training.samplers import TrainingSamplers
from loragate.adapter_store.training.stored_state import StoredStates
from loragate.adapter_store.usage.training import TrainingUsage, add_training, is_minute_used_up, training_totals


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has become with the last of some commands."""

    outcomes: Mapping[int, Outcome]  # by number, consecutive from the next one
    gradients_failed: bool
    steps: int = 0  # of the optimizer, that these commands added
    used: TrainingUsage = TrainingUsage()  # noqa: RUF009 (frozen)
    amount: int | None = None  # the price of what was used
    settings: Mapping[str, Any] | None = None  # what the settings became with a loaded adapter
    failed: bool = False  # the run could not be created
    sampler: Sampler | None = None  # to create with the results, of the adapter that is stored
    rank: int = 0  # of that adapter


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tenant's limits allow: `exceeded` is a sentence about the first one that is used up; `waits` that there
    will be tokens in the next minute."""

    exceeded: str | None
    waits: bool


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint whose bytes are stored."""

    path: CheckpointPath
    digest: str
    size_bytes: int
    user_metadata: Mapping[str, str]
    expires_at: datetime | None
    adapter_bytes: int = 0  # of `size_bytes`
    state_file: str | None = None
    adapter: str | None = None
    version: int | None = None
    rank: int | None = None  # of the stored adapter; None: that of a version, which is recorded


class TrainingLease:
    """Part of a writing TenantScope."""

    def __init__(self, session: AsyncSession, audit: AuditLog, states: StoredStates) -> None:
        self._session = session
        self._audit = audit
        self._states = states

    async def renew(self, run_ids: Sequence[str], worker: str) -> Mapping[str, TrainingRun]:
        """Renew leases; return the runs that the worker still holds."""
        row = TrainingRunRow
        held = row.id.in_(run_ids), row.worker == worker
        await self._session.execute(update(row).where(*held).values(held_until=database_later(LEASE)))
        return {each.id: run_of(each) for each in await self._session.scalars(select(row).where(*held))}

    async def payload(self, run_id: str, seq: int) -> bytes:
        """Return the payload of a command that waits."""
        row = TrainingCommandRow
        return await self._session.scalar(select(row.payload).where(row.run_id == run_id, row.seq == seq)) or b""

    async def done_since(self, run: TrainingRun) -> Sequence[Command]:
        """Return the commands that were run after the last snapshot, in order."""
        row, first = TrainingCommandRow, -1 if run.snapshot_seq is None else run.snapshot_seq
        query = select(row).where(row.run_id == run.id, row.seq > first, row.seq < run.next_seq).order_by(row.seq)
        return [_command_of(each) for each in await self._session.scalars(query)]

    async def record(self, run_id: str, worker: str, progress: Progress, base_model: str) -> TrainingRun:
        """Record results and what was used for them together; return the run. Raise LeaseLost, and Invalid for a
        sampler whose number has another, and Conflict (`quota_exceeded`)."""
        row = TrainingRunRow
        changes: dict[str, Any] = {
            "next_seq": max(progress.outcomes) + 1,
            "gradients_failed": progress.gradients_failed,
            "steps": row.steps + progress.steps,
            "trained_tokens": row.trained_tokens + progress.used.tokens,
        }
        if progress.settings is not None:
            changes |= {"settings": as_text(dict(progress.settings)), "rank": progress.settings.get("rank")}
        if progress.failed:
            changes |= {"status": "failed"}
        changed = update(row).where(*_is_held(run_id, worker)).values(**changes).returning(row)
        after = (await self._session.scalars(changed)).one_or_none()
        if after is None:
            raise _lost()
        for seq, outcome in progress.outcomes.items():
            values = outcome_columns(outcome) | {"loss": outcome.loss, "tokens": outcome.tokens}
            command = TrainingCommandRow
            waiting = command.run_id == run_id, command.seq == seq, command.status == RequestStatus.WAITING
            await self._session.execute(update(command).where(*waiting).values(**values))
        if progress.sampler is not None:
            sampler = progress.sampler
            await self._states.record_adapter(sampler.digest or "", sampler.size_bytes, progress.rank)
            await TrainingSamplers(self._session).create(sampler)
        if progress.used.tokens:
            now = await current_time(self._session)
            await add_training(
                self._session,
                progress.used,
                job_id=run_id,
                base_model=base_model,
                amount=progress.amount,
                now=now,
                key_id=after.key_id,
            )
        return run_of(after)

    async def budget(self, pending: int) -> Budget:
        """Return what is left of the tenant's limits on training, with `pending` tokens that are not recorded yet."""
        limits = await limits_of(self._session)
        totals = await training_totals(self._session, await current_time(self._session))
        exceeded = totals.plus(TrainingUsage(pending)).exceeded(limits)
        return Budget(exceeded, waits=await is_minute_used_up(self._session, limits, pending))

    async def save_snapshot(self, run_id: str, worker: str, seq: int, state: bytes) -> None:
        """Store the state after the command `seq` in place of the previous one. It must be the first call in a scope.
        Payloads that no trainer needs any more go. Raise LeaseLost, also if a later state is stored, Conflict
        (`quota_exceeded`), StorageFull."""
        async with self._states.stored(f"{run_id}/{seq}", state) as file_id:
            held = await self._held(run_id, worker)
            if held.snapshot_seq is not None and held.snapshot_seq > seq:
                raise _lost()
            replaced = held.snapshot_file
            run, command = TrainingRunRow, TrainingCommandRow
            taken = {"snapshot_file": file_id, "snapshot_seq": seq}
            await self._session.execute(update(run).where(run.id == run_id).values(**taken))
            old = command.run_id == run_id, command.seq <= seq, command.payload.is_not(None)
            done = command.status != RequestStatus.WAITING
            await self._session.execute(update(command).where(*old, done).values(payload=None))
        await self._session.commit()
        await self._states.remove(replaced)

    async def add_checkpoint(self, worker: str, new: NewCheckpoint, *, overwrite: bool) -> None:
        """Add a checkpoint. Raise LeaseLost, Invalid if there is one of this name and kind."""
        await self._held(new.path.run_id, worker)
        if new.rank is not None:
            await self._states.record_adapter(new.digest, new.adapter_bytes, new.rank)
        row = TrainingCheckpointRow
        known = await self._session.scalar(select(row).where(*here(new.path)))
        if known is not None:
            if not overwrite:
                words = f"The run has a checkpoint {new.path.name!r}: choose another name, or set `overwrite`."
                raise Invalid(words, code="checkpoint_exists", param="path")
            await self._states.discard(known.state_file)
            await self._session.execute(delete(row).where(*here(new.path)))
        values = {
            "run_id": new.path.run_id,
            "kind": new.path.kind,
            "name": new.path.name,
            "state_file": new.state_file,
            "adapter": new.adapter,
            "version": new.version,
            "digest": new.digest,
            "size_bytes": new.size_bytes,
            "user_metadata": as_text(dict(new.user_metadata)),
            "created_at": await current_time(self._session),
            "expires_at": new.expires_at,
        }
        await self._session.execute(insert(row).values(**values))
        facts = {"digest": new.digest, "size_bytes": new.size_bytes}
        await self._audit.record("training_checkpoint.create", f"training_checkpoint:{new.path}", after=facts)

    async def release(self, run_ids: Sequence[str], worker: str) -> None:
        """Give runs back, so that any trainer may hold them."""
        row = TrainingRunRow
        held = row.id.in_(run_ids), row.worker == worker
        await self._session.execute(update(row).where(*held).values(worker=None, held_until=None))

    async def _held(self, run_id: str, worker: str) -> TrainingRun:
        found = await self._session.scalar(select(TrainingRunRow).where(*_is_held(run_id, worker)).with_for_update())
        if found is None:
            raise _lost()
        return run_of(found)


def _is_held(run_id: str, worker: str) -> tuple[ColumnElement[bool], ...]:
    row = TrainingRunRow
    return row.id == run_id, row.worker == worker, row.held_until > database_now()


def _lost() -> LeaseLost:
    return LeaseLost("This trainer does not hold the run any more.")


def _command_of(row: TrainingCommandRow) -> Command:
    return Command(row.seq, CommandKind(row.kind), row.payload or b"", RequestStatus(row.status))
