"""The checkpoints of one tenant's runs."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.tables.training import TrainingCheckpointRow
from loragate.adapter_store.training.objects import Checkpoint, CheckpointPath
from loragate.adapter_store.training.rows import checkpoint_of
from loragate.adapter_store.training.stored_state import StoredStates


class TrainingCheckpoints:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession, audit: AuditLog, states: StoredStates) -> None:
        self._session = session
        self._audit = audit
        self._states = states

    async def get(self, path: str, *, param: str = "path") -> Checkpoint:
        """Return the checkpoint with a path. Raise NotFound, which names `param`."""
        parsed = CheckpointPath.parse(path)
        found = None if parsed is None else await self.find(parsed)
        if found is None:
            raise NotFound("The checkpoint does not exist.", code="checkpoint_not_found", param=param)
        return found

    async def find(self, path: CheckpointPath) -> Checkpoint | None:
        row = await self._session.scalar(select(TrainingCheckpointRow).where(*here(path), await self._alive()))
        return None if row is None else checkpoint_of(row)

    async def list(self, run_id: str | None, *, offset: int, limit: int) -> tuple[Sequence[Checkpoint], int]:
        """Return the checkpoints of a run, or of all runs, newest first, and the number of all."""
        row = TrainingCheckpointRow
        which = [await self._alive(), *([] if run_id is None else [row.run_id == run_id])]
        query = select(row).where(*which).order_by(row.created_at.desc(), row.name.desc(), row.kind)
        total = await self._session.scalar(select(func.count()).select_from(row).where(*which)) or 0
        found = await self._session.scalars(query.offset(offset).limit(limit))
        return [checkpoint_of(each) for each in found], total

    async def delete(self, path: CheckpointPath) -> Checkpoint:
        """Delete a checkpoint; its bytes go with the next sweep. A version that it became stays. Raise NotFound."""
        found = await self.get(str(path))
        await self._session.execute(delete(TrainingCheckpointRow).where(*here(path)))
        await self._states.discard(found.state_file)
        await self._audit.record("training_checkpoint.delete", f"training_checkpoint:{path}", before={})
        return found

    async def expire(self) -> int:
        """Delete the checkpoints whose time is over; return their number."""
        row, now = TrainingCheckpointRow, await current_time(self._session)
        gone = delete(row).where(row.expires_at <= now).returning(row.state_file)
        files = [found.state_file for found in await self._session.execute(gone)]
        for file_id in files:
            await self._states.discard(file_id)
        return len(files)

    async def set_lifetime(self, path: CheckpointPath, lifetime: timedelta | None) -> None:
        """Let a checkpoint expire after `lifetime` from now; None: never. Raise NotFound."""
        await self.get(str(path))
        expires_at = None if lifetime is None else await current_time(self._session) + lifetime
        await self._session.execute(update(TrainingCheckpointRow).where(*here(path)).values(expires_at=expires_at))

    async def _alive(self) -> ColumnElement[bool]:
        row = TrainingCheckpointRow
        return or_(row.expires_at.is_(None), row.expires_at > await current_time(self._session))


def here(path: CheckpointPath) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a checkpoint's row."""
    row = TrainingCheckpointRow
    return row.run_id == path.run_id, row.kind == path.kind, row.name == path.name
