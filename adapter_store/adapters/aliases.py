"""Aliases of adapters: their targets, and how they are moved."""

from collections.abc import Sequence

import orjson
from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import PUBLISHED, AliasTarget, VersionStatus
from loragate.adapter_store.adapters.route_summary import refresh_summary
from loragate.adapter_store.adapters.versions import is_deferred
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.names import could_be_version
from loragate.adapter_store.tables.adapters import AdapterAliasRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.timestamps import utc_now

MAX_TARGETS = 16
MAX_WEIGHT = 1_000_000

Targets = tuple[AliasTarget, ...]


def check_targets(targets: Sequence[AliasTarget]) -> None:
    """Raise Invalid unless there are 1 to 16 different versions with weights of 1 to a million."""
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise Invalid(f"`targets` must have 1 to {MAX_TARGETS} entries.", param="targets")
    if len({target.version for target in targets}) < len(targets):
        raise Invalid("`targets` must not name a version twice.", param="targets")
    for index, target in enumerate(targets):
        if isinstance(target.weight, bool) or not 1 <= target.weight <= MAX_WEIGHT:
            raise Invalid(f"`weight` must be a whole number from 1 to {MAX_WEIGHT}.", param=f"targets[{index}].weight")


async def targets_of(session: AsyncSession, adapter_id: str, alias: str) -> Targets:
    """Return an alias's targets, ordered by version; empty if the alias does not exist."""
    row = AliasTargetRow
    query = select(row).where(row.adapter_id == adapter_id, row.alias == alias).order_by(row.version)
    return tuple(AliasTarget(target.version, target.weight) for target in await session.scalars(query))


async def previous_targets(session: AsyncSession, adapter_id: str, alias: str) -> Targets:
    """Return the targets before the last move. Raise NotFound, and Conflict if the alias was never moved."""
    here = (AdapterAliasRow.adapter_id == adapter_id, AdapterAliasRow.name == alias)
    row = (await session.execute(select(AdapterAliasRow.previous).where(*here))).one_or_none()
    if row is None:
        raise alias_not_found()
    if row.previous is None:
        raise Conflict(
            f"`{alias}` has never been moved, so there is nothing to roll back to.",
            code="nothing_to_roll_back",
            param="alias",
        )
    return tuple(AliasTarget(version, weight) for version, weight in orjson.loads(row.previous))


def alias_not_found() -> NotFound:
    return NotFound("The alias does not exist.", code="alias_not_found", param="alias")


async def move_alias(
    session: AsyncSession, adapter_id: str, alias: str, targets: Sequence[AliasTarget], was: Sequence[AliasTarget]
) -> None:
    """Point an alias at checked targets; `was` are its targets so far, empty for a new alias.

    Raise NotFound for a version that does not exist, Conflict for one that cannot be served.
    """
    await _require_ready(session, adapter_id, targets)
    now, here = utc_now(), (AdapterAliasRow.adapter_id == adapter_id, AdapterAliasRow.name == alias)
    if was:
        previous = orjson.dumps([(target.version, target.weight) for target in was]).decode()
        await session.execute(update(AdapterAliasRow).where(*here).values(previous=previous, updated_at=now))
    else:
        new = insert(AdapterAliasRow).values(adapter_id=adapter_id, name=alias, created_at=now, updated_at=now)
        await session.execute(new)
    old = (AliasTargetRow.adapter_id == adapter_id, AliasTargetRow.alias == alias)
    await session.execute(delete(AliasTargetRow).where(*old))
    for target in targets:
        values = {"adapter_id": adapter_id, "alias": alias, "version": target.version, "weight": target.weight}
        await session.execute(insert(AliasTargetRow).values(**values))
    await refresh_summary(session, adapter_id)


async def delete_alias(session: AsyncSession, adapter_id: str, alias: str) -> None:
    """Delete an alias with its targets and its history."""
    target, row = AliasTargetRow, AdapterAliasRow
    await session.execute(delete(target).where(target.adapter_id == adapter_id, target.alias == alias))
    await session.execute(delete(row).where(row.adapter_id == adapter_id, row.name == alias))
    await refresh_summary(session, adapter_id)


async def aliases_pointing_at(session: AsyncSession, adapter_id: str, version: int) -> Sequence[str]:
    """Return the names of the aliases that have the version as a target."""
    row = AliasTargetRow
    query = select(row.alias).where(row.adapter_id == adapter_id, row.version == version).order_by(row.alias)
    return (await session.scalars(query)).all()


async def _require_ready(session: AsyncSession, adapter_id: str, targets: Sequence[AliasTarget]) -> None:
    row = AdapterVersionRow
    wanted = [target.version for target in targets if could_be_version(target.version)]
    query = select(row.version, row.status).where(
        row.adapter_id == adapter_id,
        row.version.in_(wanted),
        row.deleted_at.is_(None),
        or_(row.status.in_([status.value for status in PUBLISHED]), is_deferred()),
    )
    statuses = dict(iter(await session.execute(query)))
    for index, target in enumerate(targets):
        param, status = f"targets[{index}].version", statuses.get(target.version)
        if status is None:
            raise NotFound(f"Version {target.version} does not exist.", param=param)
        if status != VersionStatus.READY:
            raise Conflict(f"Version {target.version} is {status}.", code=f"version_{status}", param=param)


class AliasMoves:
    """Moves of one tenant's aliases, recorded in the audit log."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def move(
        self, action: str, adapter_id: str, name: str, alias: str, targets: Sequence[AliasTarget]
    ) -> Targets:
        """Point an alias at checked targets, if it does not already; return them ordered by version."""
        was = await targets_of(self._session, adapter_id, alias)
        become = tuple(sorted(targets, key=lambda target: target.version))
        if become != was:
            await move_alias(self._session, adapter_id, alias, targets, was)
            before = _facts(was) if was else None
            await self._audit.record(f"alias.{action}", f"alias:{name}@{alias}", before=before, after=_facts(become))
        return become

    async def delete(self, adapter_id: str, name: str, alias: str) -> None:
        """Delete an alias. Raise NotFound."""
        was = await targets_of(self._session, adapter_id, alias)
        if not was:
            raise alias_not_found()
        await delete_alias(self._session, adapter_id, alias)
        await self._audit.record("alias.delete", f"alias:{name}@{alias}", before=_facts(was))

    async def to_new(self, adapter_id: str, name: str, alias: str, version: int) -> None:
        """Point an alias at a version that was just published, unless it already points at a later one."""
        was = await targets_of(self._session, adapter_id, alias)
        if all(target.version < version for target in was):
            await self.move("set", adapter_id, name, alias, [AliasTarget(version)])

    async def only_version(self, adapter_id: str, alias: str) -> int:
        """Return the alias's only version. Raise NotFound, and Invalid if it has several."""
        targets = await targets_of(self._session, adapter_id, alias)
        if not targets:
            raise alias_not_found()
        if len(targets) > 1:
            raise Invalid(f"`{alias}` points at several versions; name the one to promote.", param="from_alias")
        return targets[0].version


def _facts(targets: Sequence[AliasTarget]) -> dict[str, object]:
    return {"targets": [{"version": target.version, "weight": target.weight} for target in targets]}
