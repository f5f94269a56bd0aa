"""What a list tells of each adapter beyond its row: two queries, however many adapters."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import Adapter, Aliases, AliasTarget
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.versions import adapter_of


async def with_details(session: AsyncSession, rows: Sequence[AdapterRow]) -> tuple[Adapter, ...]:
    """In the same order. Reached through the adapters' own rows, so that indices that begin with a tenant serve."""
    ids = [row.id for row in rows]
    if not ids:
        return ()
    latest = await _latest_versions(session, ids)
    aliases, routed = await _aliases(session, ids)
    return tuple(adapter_of(row, latest.get(row.id), aliases.get(row.id, {}), routed.get(row.id, {})) for row in rows)


async def _latest_versions(session: AsyncSession, ids: Sequence[str]) -> dict[str, int]:
    adapter, version = AdapterRow, AdapterVersionRow
    same = and_(version.tenant_id == adapter.tenant_id, version.adapter_id == adapter.id)
    query = (
        select(version.adapter_id, func.max(version.version))
        .join(adapter, same)
        .where(adapter.id.in_(ids), version.deleted_at.is_(None))
        .group_by(version.adapter_id)
    )
    return dict(iter(await session.execute(query)))


async def _aliases(
    session: AsyncSession, ids: Sequence[str]
) -> tuple[Mapping[str, Aliases], Mapping[str, Mapping[int, str]]]:
    """Aliases by adapter, ordered by name and their targets by version; and the digests of those versions."""
    adapter, target, version = AdapterRow, AliasTargetRow, AdapterVersionRow
    same = and_(target.tenant_id == adapter.tenant_id, target.adapter_id == adapter.id)
    targeted = and_(
        version.tenant_id == target.tenant_id,
        version.adapter_id == target.adapter_id,
        version.version == target.version,
    )
    query = (
        select(target.adapter_id, target.alias, target.version, target.weight, version.digest)
        .join(adapter, same)
        .join(version, targeted)
        .where(adapter.id.in_(ids))
        .order_by(target.alias, target.version)
    )
    aliases: dict[str, dict[str, tuple[AliasTarget, ...]]] = defaultdict(dict)
    routed: dict[str, dict[int, str]] = defaultdict(dict)
    for adapter_id, alias, number, weight, digest in await session.execute(query):
        of_adapter = aliases[adapter_id]
        of_adapter[alias] = (*of_adapter.get(alias, ()), AliasTarget(number, weight))
        routed[adapter_id][number] = digest
    return aliases, routed
