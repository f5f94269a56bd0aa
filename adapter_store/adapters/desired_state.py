"""The desired state of engines: the versions to prefetch or pin, and the contents that still exist."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import and_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import Adapter, VersionStatus
from loragate.adapter_store.adapters.rows import adapter_of
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow, AliasTargetRow

_PAIRS = 500  # in one query
_DEAD = (VersionStatus.REJECTED, VersionStatus.QUARANTINED)

Content = tuple[str, str]
"""A tenant's id and a digest."""


class Placement(StrEnum):
    """The tier in which every engine should hold an adapter: pinned to the device, or prefetched to the disk."""

    PINNED = "pinned"
    PREFETCHED = "prefetched"


@dataclass(frozen=True)
class PlacedVersion:
    """A target of an alias of a placed adapter."""

    tenant_id: str
    digest: str
    size_bytes: int
    placement: Placement


@dataclass(frozen=True)
class PlacementBounds:
    """The capacity of an engine; None is unknown."""

    on_device: int | None = None  # versions
    on_disk: int | None = None  # bytes of files


class DesiredState:
    """Part of an AdminScope: the placement of adapters."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def place(self, adapter_id: str, placement: Placement | None, bounds: PlacementBounds) -> Adapter:
        """Place the versions that the adapter's aliases point at on every engine; None leaves it to their use.

        Raise NotFound; Conflict if engines have no capacity for more.
        """
        before = await self._adapter(adapter_id)
        await self._session.execute(update(AdapterRow).where(AdapterRow.id == adapter_id).values(placement=placement))
        if placement is not None:
            _check(await self.placed(), bounds)
        after = await self._adapter(adapter_id)
        target = f"adapter:{after.name}"
        await self._audit.record_change("adapter.place", target, after.tenant_id, before, after)
        return after

    async def placed(self) -> tuple[PlacedVersion, ...]:
        """Return the versions that engines should hold, of enabled adapters only, the oldest adapters first."""
        adapter, target, version = AdapterRow, AliasTargetRow, AdapterVersionRow
        of_adapter = and_(target.tenant_id == adapter.tenant_id, target.adapter_id == adapter.id)
        targeted = and_(
            version.tenant_id == target.tenant_id,
            version.adapter_id == target.adapter_id,
            version.version == target.version,
        )
        query = (
            select(version.tenant_id, version.digest, version.size_bytes, adapter.placement)
            .select_from(adapter)
            .join(target, of_adapter)
            .join(version, targeted)
            .where(adapter.placement.is_not(None), adapter.deleted_at.is_(None), adapter.disabled_at.is_(None))
            .where(version.deleted_at.is_(None), version.status == VersionStatus.READY)
            .order_by(adapter.created_at, adapter.id, version.version)
        )
        found = (
            PlacedVersion(tenant_id, digest, size_bytes, Placement(placement))
            for tenant_id, digest, size_bytes, placement in await self._session.execute(query)
            if placement is not None
        )
        return tuple(dict.fromkeys(found))

    async def living(self, contents: Iterable[Content]) -> set[Content]:
        """Return the contents that belong to a version that is not deleted."""
        version, wanted, living = AdapterVersionRow, list(contents), set[Content]()
        for start in range(0, len(wanted), _PAIRS):
            pairs = tuple_(version.tenant_id, version.digest).in_(wanted[start : start + _PAIRS])
            query = select(version.tenant_id, version.digest).where(
                version.deleted_at.is_(None), version.status.not_in(_DEAD), pairs
            )
            living |= {(tenant_id, digest) for tenant_id, digest in await self._session.execute(query)}
        return living

    async def _adapter(self, adapter_id: str) -> Adapter:
        query = select(AdapterRow.id).where(AdapterRow.id == adapter_id, AdapterRow.deleted_at.is_(None))
        if not could_be_id(adapter_id) or await self._session.scalar(query) is None:
            raise NotFound("The adapter does not exist.", code="adapter_not_found", param="adapter_id")
        return await adapter_of(self._session, adapter_id)


def _check(placed: Iterable[PlacedVersion], bounds: PlacementBounds) -> None:
    """Raise Conflict if the placed versions exceed the capacity of an engine."""
    placed = list(placed)
    pinned = sum(each.placement is Placement.PINNED for each in placed)
    size = sum(each.size_bytes for each in placed)
    if bounds.on_device is not None and pinned > bounds.on_device:
        raise Conflict(
            f"An engine can pin {bounds.on_device} versions, and this would make it {pinned}; let others go first.",
            code="too_many_pins",
            param="placement",
        )
    if bounds.on_disk is not None and size > bounds.on_disk:
        raise Conflict(
            f"An engine keeps {bounds.on_disk} bytes of adapters on its disk, and this would make it {size}; let "
            "others go first.",
            code="insufficient_disk",
            param="placement",
        )
