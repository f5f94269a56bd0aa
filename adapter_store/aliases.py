"""Aliases of adapters: what they point at, and how they are moved."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import Aliases, AliasTarget
from loragate.adapter_store.errors import Invalid, NotFound
from loragate.adapter_store.names import could_be_version
from loragate.adapter_store.tables import AdapterAliasRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.times import utc_now

MAX_TARGETS = 16
MAX_WEIGHT = 1_000_000


def check_targets(targets: Sequence[AliasTarget]) -> None:
    """Raises Invalid unless there are 1 to 16 different versions with weights of 1 to a million."""
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise Invalid(f"`targets` must have 1 to {MAX_TARGETS} entries.", param="targets")
    if len({target.version for target in targets}) < len(targets):
        raise Invalid("`targets` must not name a version twice.", param="targets")
    for index, target in enumerate(targets):
        if isinstance(target.weight, bool) or not 1 <= target.weight <= MAX_WEIGHT:
            raise Invalid(f"`weight` must be a whole number from 1 to {MAX_WEIGHT}.", param=f"targets[{index}].weight")


async def aliases_of(session: AsyncSession, adapter_ids: Iterable[str]) -> dict[str, Aliases]:
    """Aliases by adapter id, ordered by name and their targets by version."""
    row = AliasTargetRow
    query = select(row).where(row.adapter_id.in_(list(adapter_ids))).order_by(row.alias, row.version)
    found: dict[str, dict[str, tuple[AliasTarget, ...]]] = defaultdict(dict)
    for target in await session.scalars(query):
        of_adapter = found[target.adapter_id]
        arm = AliasTarget(target.version, target.weight)
        of_adapter[target.alias] = (*of_adapter.get(target.alias, ()), arm)
    return dict(found)


async def move_alias(session: AsyncSession, adapter_id: str, alias: str, targets: Sequence[AliasTarget]) -> None:
    """Points an alias, new or not, at checked targets. Raises NotFound for a version that is not there."""
    await _require_versions(session, adapter_id, targets)
    now = utc_now()
    here = (AdapterAliasRow.adapter_id == adapter_id, AdapterAliasRow.name == alias)
    if await session.scalar(select(AdapterAliasRow.name).where(*here)) is None:
        new = insert(AdapterAliasRow).values(adapter_id=adapter_id, name=alias, created_at=now, updated_at=now)
        await session.execute(new)
    else:
        await session.execute(update(AdapterAliasRow).where(*here).values(updated_at=now))
    await session.execute(
        delete(AliasTargetRow).where(AliasTargetRow.adapter_id == adapter_id, AliasTargetRow.alias == alias)
    )
    for target in targets:
        await session.execute(
            insert(AliasTargetRow).values(
                adapter_id=adapter_id, alias=alias, version=target.version, weight=target.weight
            )
        )


async def aliases_pointing_at(session: AsyncSession, adapter_id: str, version: int) -> Sequence[str]:
    row = AliasTargetRow
    query = select(row.alias).where(row.adapter_id == adapter_id, row.version == version).order_by(row.alias)
    return (await session.scalars(query)).all()


async def drop_aliases(session: AsyncSession, adapter_id: str) -> None:
    await session.execute(delete(AliasTargetRow).where(AliasTargetRow.adapter_id == adapter_id))
    await session.execute(delete(AdapterAliasRow).where(AdapterAliasRow.adapter_id == adapter_id))


async def _require_versions(session: AsyncSession, adapter_id: str, targets: Sequence[AliasTarget]) -> None:
    row = AdapterVersionRow
    wanted = [target.version for target in targets]
    possible = [version for version in wanted if could_be_version(version)]
    query = select(row.version).where(row.adapter_id == adapter_id, row.version.in_(possible), row.deleted_at.is_(None))
    found = set(await session.scalars(query))
    for index, version in enumerate(wanted):
        if version not in found:
            raise NotFound(f"Version {version} does not exist.", param=f"targets[{index}].version")
