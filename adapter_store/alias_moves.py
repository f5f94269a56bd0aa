"""Moves of aliases, each one written into the audit log."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.adapters.aliases import Targets, alias_not_found, delete_alias, move_alias, targets_of
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.errors import Invalid


class AliasMoves:
    """Of one tenant's adapters."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def move(
        self, action: str, adapter_id: str, name: str, alias: str, targets: Sequence[AliasTarget]
    ) -> Targets:
        """Points an alias at checked targets; returns them ordered by version. Where it does already, that is all."""
        was = await targets_of(self._session, adapter_id, alias)
        become = tuple(sorted(targets, key=lambda target: target.version))
        if become != was:
            await move_alias(self._session, adapter_id, alias, targets, was)
            before = _facts(was) if was else None
            await self._audit.record(f"alias.{action}", f"alias:{name}@{alias}", before=before, after=_facts(become))
        return become

    async def delete(self, adapter_id: str, name: str, alias: str) -> None:
        """Raises NotFound."""
        was = await targets_of(self._session, adapter_id, alias)
        if not was:
            raise alias_not_found()
        await delete_alias(self._session, adapter_id, alias)
        await self._audit.record("alias.delete", f"alias:{name}@{alias}", before=_facts(was))

    async def to_new(self, adapter_id: str, name: str, alias: str, version: int) -> None:
        """To a version that was just published, unless the alias points at a later one by now."""
        was = await targets_of(self._session, adapter_id, alias)
        if all(arm.version < version for arm in was):
            await self.move("set", adapter_id, name, alias, [AliasTarget(version)])

    async def only_version(self, adapter_id: str, alias: str) -> int:
        """What the alias points at. Raises NotFound, and Invalid where that is more than one version."""
        targets = await targets_of(self._session, adapter_id, alias)
        if not targets:
            raise alias_not_found()
        if len(targets) > 1:
            raise Invalid(f"`{alias}` points at several versions; name the one to promote.", param="from_alias")
        return targets[0].version


def _facts(targets: Sequence[AliasTarget]) -> dict[str, object]:
    return {"targets": [{"version": target.version, "weight": target.weight} for target in targets]}
