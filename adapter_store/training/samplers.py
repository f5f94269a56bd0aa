"""The samplers of one tenant's sessions, and the requests to them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import database_later, database_now
from loragate.adapter_store.database.upsert import upsert
from loragate.adapter_store.errors import Invalid, NotFound
from loragate.adapter_store.tables.training import SampleRow, SamplerRow
from loragate.adapter_store.training.objects import Outcome, RequestStatus, Sampler
from loragate.adapter_store.training.rows import outcome_columns, outcome_of, sampler_of

SAMPLE_LEASE = timedelta(seconds=60)


class TrainingSamplers:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def create(self, sampler: Sampler) -> Sampler:
        """Create a sampler; the same one again is the same. Raise Invalid if the session has another with its id."""
        values = {
            "id": sampler.id,
            "session_id": sampler.session_id,
            "model_path": sampler.model_path,
            "adapter": sampler.adapter,
            "version": sampler.version,
            "digest": sampler.digest,
            "size_bytes": sampler.size_bytes,
            "created_at": database_now(),
        }
        if not await self._add(SamplerRow, values) and await self._find(sampler.id) != sampler:
            words = "The session has another sampler with this number."
            raise Invalid(words, code="seq_id_reused", param="sampling_session_seq_id")
        return sampler

    async def get(self, sampler_id: str) -> Sampler:
        """Return a sampler. Raise NotFound, also once its session has ended."""
        found = await self._find(sampler_id)
        if found is None:
            words = "The sampling session does not exist, or its session has ended."
            raise NotFound(words, code="sampler_not_found", param="sampling_session_id")
        return found

    async def of_session(self, session_id: str) -> Sequence[str]:
        """Return the ids of a session's samplers."""
        query = select(SamplerRow.id).where(SamplerRow.session_id == session_id).order_by(SamplerRow.created_at)
        return (await self._session.scalars(query)).all()

    async def submit(self, sampler_id: str, seq: int, request: bytes, worker: str) -> bool:
        """Record a request that `worker` will run; return False if it is known. Raise Invalid for other content."""
        row, digest = SampleRow, hashlib.sha256(request).digest()
        values = {"status": RequestStatus.WAITING, "worker": worker, "held_until": database_later(SAMPLE_LEASE)}
        place = {"sampler_id": sampler_id, "seq": seq, "digest": digest, "created_at": database_now()}
        if await self._add(row, place | values):
            return True
        known = await self._session.scalar(select(row.digest).where(row.sampler_id == sampler_id, row.seq == seq))
        if known != digest:
            words = f"The request {seq} of this sampler was sent before with other content."
            raise Invalid(words, code="seq_id_reused", param="seq_id")
        return False

    async def finish(self, sampler_id: str, seq: int, worker: str, outcome: Outcome) -> None:
        """Record the result of a request that `worker` ran."""
        row, values = SampleRow, outcome_columns(outcome)
        held = row.sampler_id == sampler_id, row.seq == seq, row.worker == worker
        await self._session.execute(update(row).where(*held, row.status == RequestStatus.WAITING).values(**values))

    async def outcomes(self, sampler_id: str, numbers: Iterable[int]) -> Mapping[int, Outcome | None]:
        """Return what is known of requests, by their numbers; None for one whose gateway died."""
        row = SampleRow
        lost = and_(row.status == RequestStatus.WAITING, row.held_until < database_now())
        query = select(row, lost).where(row.sampler_id == sampler_id, row.seq.in_(list(numbers)))
        found = await self._session.execute(query)
        return {each.seq: None if is_lost else outcome_of(each) for each, is_lost in found.tuples()}

    async def _add(self, row: type[SamplerRow] | type[SampleRow], values: Mapping[str, Any]) -> bool:
        """Add a row; return False if there is one with its key."""
        add = upsert(self._session, row).values(**values).on_conflict_do_nothing()
        return (await self._session.execute(add.returning(row.created_at))).first() is not None

    async def _find(self, sampler_id: str) -> Sampler | None:
        row = None
        if len(sampler_id) <= 128:
            row = await self._session.scalar(select(SamplerRow).where(SamplerRow.id == sampler_id))
        return None if row is None else sampler_of(row)
