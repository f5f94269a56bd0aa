"""The summary of an adapter's versions and aliases in its own row. To collect it for each adapter of a list took the
database longer than to find the page.

Every change of versions or aliases must refresh it in the same transaction.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import orjson
from sqlalchemy import and_, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import PUBLISHED, Aliases, AliasTarget
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow, AliasTargetRow

RoutedTarget = tuple[str, int, int, str]
"""An alias, a version that it points at, with what weight, and the version's digest."""


async def refresh_summary(session: AsyncSession, adapter_id: str) -> None:
    """Write the current versions and aliases to the adapter's row. Needs a tenant's session."""
    version, target = AdapterVersionRow, AliasTargetRow
    highest = select(func.max(version.version)).where(
        version.adapter_id == adapter_id,
        version.deleted_at.is_(None),
        version.status.in_([status.value for status in PUBLISHED]),
    )
    targeted = and_(version.adapter_id == target.adapter_id, version.version == target.version)
    targets = select(target.alias, target.version, target.weight, version.digest).join(version, targeted)
    found = (await session.execute(targets.where(target.adapter_id == adapter_id))).tuples().all()
    summary = {"latest_version": await session.scalar(highest), "routes": encode_routes(found)}
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter_id).values(**summary))


def encode_routes(targets: Iterable[RoutedTarget]) -> str | None:
    """Return the text for `decode_routes`; each digest occurs once."""
    targets = sorted(targets)
    if not targets:
        return None
    aliases = {alias: [target[1:3] for target in of] for alias, of in groupby(targets, itemgetter(0))}
    return orjson.dumps((aliases, sorted({(version, digest) for _, version, _, digest in targets}))).decode()


def decode_routes(text: str | None) -> tuple[Aliases, dict[int, str]]:
    """Return the aliases, and the digests of the versions that they point at."""
    if text is None:
        return {}, {}
    aliases, digests = orjson.loads(text)
    targets = {alias: tuple(AliasTarget(*each) for each in targeted) for alias, targeted in aliases.items()}
    return targets, dict(digests)
