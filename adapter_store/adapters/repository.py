"""The adapters of one tenant."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters import deletion
from loragate.adapter_store.adapters.adapter import (
    DEFAULT_ALIAS,
    Adapter,
    AdapterVersion,
    Aliases,
    AliasTarget,
    VersionStatus,
)
from loragate.adapter_store.adapters.aliases import AliasMoves, Targets, check_targets, previous_targets
from loragate.adapter_store.adapters.description import Description, described
from loragate.adapter_store.adapters.filter import EVERY_ADAPTER, AdapterFilter
from loragate.adapter_store.adapters.routing import Route, route_to_alias, route_to_version
from loragate.adapter_store.adapters.rows import adapter_named
from loragate.adapter_store.adapters.search import adapter_page
from loragate.adapter_store.adapters.search_text import search_text
from loragate.adapter_store.adapters.versions import (
    adapter_missing,
    enable_version,
    require_adapter,
    require_version,
    select_in_state,
    version_of,
)
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page, checked_limit, cut_page
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.names import check_alias_name, could_be_name, could_be_version
from loragate.adapter_store.quotas import check_quotas, limits_of
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterTagRow, AdapterVersionRow
from loragate.adapter_store.timestamps import utc_now


class AdapterRepository:
    """Part of a TenantScope; every method sees that tenant's adapters only."""

    def __init__(self, session: AsyncSession, audit: AuditLog, retention: timedelta) -> None:
        """`retention` is the time in which a deleted adapter can be restored."""
        self._session = session
        self._audit = audit
        self._retention = retention
        self._moves = AliasMoves(session, audit)

    async def list(
        self, wanted: AdapterFilter = EVERY_ADAPTER, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[Adapter]:
        """Return adapters, newest first; `after` is the id of the last one seen."""
        return await adapter_page(self._session, wanted, after=after, limit=limit)

    async def get(self, name: str) -> Adapter:
        found = await adapter_named(self._session, name) if could_be_name(name) else None
        if found is None:
            raise adapter_missing(name)
        return found

    async def versions(
        self, name: str, *, after: int | None = None, limit: int = DEFAULT_LIMIT, status: VersionStatus | None = None
    ) -> Page[AdapterVersion]:
        """Return versions in one state, or all published ones, highest first; `after` is the last number seen."""
        checked_limit(limit)
        adapter = await require_adapter(self._session, name)
        query = select_in_state(adapter.id, status)
        if after is not None:
            if not could_be_version(after):
                raise Invalid("`after` is not a version.", param="after")
            query = query.where(AdapterVersionRow.version < after)
        rows = (await self._session.execute(query.limit(limit + 1))).all()
        return cut_page([version_of(adapter.name, row) for row in rows], limit)

    async def version(self, name: str, version: int) -> AdapterVersion:
        return await require_version(self._session, await require_adapter(self._session, name), version)

    async def update(
        self,
        name: str,
        *,
        limits: Mapping[str, int | None] | None = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
    ) -> Adapter:
        """Replace what is given, limits one by one. A disabled adapter finishes requests in flight and rejects new
        ones. Raise Invalid."""
        adapter = await self.get(name)
        new = described(adapter.description, tags, description)
        now = utc_now()
        changed: dict[str, object] = {"limits": adapter.limits.merged(limits or {}), "updated_at": now}
        if enabled is not None:
            changed["disabled_at"] = None if enabled else now
        await self._session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**changed))
        if new != adapter.description:
            await describe(self._session, adapter, new)
        after = await self.get(name)
        await self._audit.record_change("adapter.update", f"adapter:{name}", "", adapter, after)
        return after

    async def enable_version(self, name: str, version: int, enabled: bool) -> AdapterVersion:
        """Enable or disable a version. Once disabled, requests in flight finish, new ones are rejected, and an alias's
        other targets serve its share meanwhile. Raise Conflict."""
        before = await self.version(name, version)
        await enable_version(self._session, before, enabled)
        after = await self.version(name, version)
        action = "enable" if enabled else "disable"
        await self._audit.record_change(f"adapter_version.{action}", _version_target(name, version), "", before, after)
        return after

    async def delete(self, name: str) -> None:
        """Delete an adapter with its versions and aliases. Requests in flight finish on the version they resolved."""
        adapter = await require_adapter(self._session, name)
        await deletion.delete_adapter(self._session, adapter)
        await self._audit.record("adapter.delete", f"adapter:{name}", before={"last_version": adapter.last_version})

    async def delete_version(self, name: str, version: int) -> None:
        """Delete a version. Raise Conflict while an alias points at it."""
        adapter = await require_adapter(self._session, name)
        found = await require_version(self._session, adapter, version)
        await deletion.delete_version(self._session, adapter, version)
        was = {"digest": found.digest}
        await self._audit.record("adapter_version.delete", _version_target(name, version), before=was)

    async def restore(self, name: str) -> Adapter:
        """Restore the adapter that had the name last, with its aliases and the versions deleted with it.

        Raise NotFound, Conflict (`name_taken`, `restore_expired`, `quota_exceeded`).
        """
        adapter = await deletion.find_deleted(self._session, name)
        await deletion.restore_adapter(self._session, adapter, utc_now() - self._retention)
        await check_quotas(self._session, await limits_of(self._session))
        await self._audit.record("adapter.restore", f"adapter:{name}", after={"last_version": adapter.last_version})
        return await self.get(name)

    async def restore_version(self, name: str, version: int) -> AdapterVersion:
        """Restore a version. Raise NotFound, Conflict (`restore_expired`, `quota_exceeded`)."""
        adapter = await require_adapter(self._session, name)
        found = await require_version(self._session, adapter, version, deleted=True)
        await deletion.restore_version(self._session, adapter, version, found.deleted_at, utc_now() - self._retention)
        await check_quotas(self._session, await limits_of(self._session))
        facts = {"digest": found.digest}
        await self._audit.record("adapter_version.restore", _version_target(name, version), after=facts)
        return await self.version(name, version)

    async def record_export(self, version: AdapterVersion) -> None:
        """Record in the audit log that the base model was exported with this version merged into it."""
        facts = {"digest": version.digest, "base_digest": version.base_digest}
        await self._audit.record(
            "adapter_version.export_merged", _version_target(version.name, version.version), after=facts
        )

    async def aliases(self, name: str) -> Aliases:
        return (await self.get(name)).aliases

    async def set_alias(self, name: str, alias: str, targets: Sequence[AliasTarget]) -> Targets:
        """Point the alias at exactly these targets; return them ordered by version."""
        check_alias_name(alias)
        check_targets(targets)
        adapter = await require_adapter(self._session, name)
        return await self._moves.move("set", adapter.id, name, alias, targets)

    async def delete_alias(self, name: str, alias: str) -> str:
        """Delete an alias, not its versions; return the adapter's id. Raise NotFound, and Conflict for the default
        alias, because the bare name means that one."""
        adapter = await require_adapter(self._session, name)
        if alias == DEFAULT_ALIAS:
            raise Conflict(
                f"`{DEFAULT_ALIAS}` is the meaning of the bare name and cannot be deleted; point it elsewhere, or "
                "delete the adapter.",
                code="default_alias",
                param="alias",
            )
        await self._moves.delete(adapter.id, name, alias)
        return adapter.id

    async def promote(
        self, name: str, alias: str, *, version: int | None = None, from_alias: str | None = None
    ) -> Targets:
        """Point the alias at one version only: `version`, or the one that `from_alias` points at.

        Raise Invalid, NotFound, Conflict.
        """
        check_alias_name(alias)
        adapter = await require_adapter(self._session, name)
        if from_alias is not None:
            version = await self._moves.only_version(adapter.id, from_alias)
        assert version is not None
        return await self._moves.move("promote", adapter.id, name, alias, [AliasTarget(version)])

    async def rollback(self, name: str, alias: str) -> Targets:
        """Point the alias at its targets before the last move; a second rollback undoes the first.

        Raise NotFound, Conflict (`nothing_to_roll_back`, or a version that cannot be served any more).
        """
        check_alias_name(alias)
        adapter = await require_adapter(self._session, name)
        targets = await previous_targets(self._session, adapter.id, alias)
        try:
            return await self._moves.move("rollback", adapter.id, name, alias, targets)
        except NotFound as gone:
            raise Conflict(
                f"`{alias}` cannot be rolled back: {gone.message} Restore it, or point the alias elsewhere.",
                code="version_deleted",
                param="alias",
            ) from gone

    async def route(self, name: str, *, version: int | None = None, alias: str | None = None) -> Route:
        """Return the current meaning of `name`, `name:version` or `name@alias`. Raise NotFound."""
        assert version is None or alias is None
        if version is not None:
            return await route_to_version(self._session, name, version)
        return await route_to_alias(self._session, name, alias or DEFAULT_ALIAS)


def _version_target(name: str, version: int) -> str:
    return f"adapter_version:{name}:{version}"


async def describe(session: AsyncSession, adapter: Adapter, new: Description) -> None:
    """Replace an adapter's description. Needs a tenant's session."""
    texts = {
        "tags": new.tags,
        "description": new.text,
        "search_text": search_text(adapter.name, new),
    }
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**texts))
    await session.execute(delete(AdapterTagRow).where(AdapterTagRow.adapter_id == adapter.id))
    for tag in new.tags:
        row = {"adapter_id": adapter.id, "tag": tag, "created_at": adapter.created_at}
        await session.execute(insert(AdapterTagRow).values(**row))
