"""The adapters of one tenant."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import (
    DEFAULT_ALIAS,
    Adapter,
    AdapterVersion,
    Aliases,
    AliasTarget,
)
from loragate.adapter_store.adapter_details import adapter_of, adapter_page
from loragate.adapter_store.adapter_filter import EVERY_ADAPTER, AdapterFilter
from loragate.adapter_store.aliases import (
    aliases_of,
    aliases_pointing_at,
    check_targets,
    drop_aliases,
    move_alias,
)
from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.blobs import TenantBlobs
from loragate.adapter_store.describing import describe
from loragate.adapter_store.description import NOTHING_SAID, described
from loragate.adapter_store.errors import Conflict, Invalid, Unavailable
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.manifests import Manifests
from loragate.adapter_store.names import check_adapter_name, check_alias_name, could_be_version
from loragate.adapter_store.page import DEFAULT_LIMIT, Page, checked_limit, cut_page
from loragate.adapter_store.publishing import register
from loragate.adapter_store.quotas import check_quotas
from loragate.adapter_store.routing import Route, route_to_alias, route_to_version
from loragate.adapter_store.staging import Stage
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, TenantRow
from loragate.adapter_store.tenancy import tenant_of
from loragate.adapter_store.times import utc_now
from loragate.adapter_store.versions import (
    require_adapter,
    require_version,
    select_versions,
    version_of,
)


class AdapterRepository:
    """Part of a TenantScope; every method sees that tenant's adapters only."""

    def __init__(
        self, session: AsyncSession, blobs: TenantBlobs, stage: Stage, manifests: Manifests, audit: AuditLog
    ) -> None:
        self._session = session
        self._audit = audit
        self._blobs = blobs
        self._stage = stage
        self._manifests = manifests

    async def publish(
        self,
        name: str,
        config_json: bytes,
        tensors: Path | BinaryIO,
        *,
        alias: str = DEFAULT_ALIAS,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> AdapterVersion:
        """Checks the two files against the base model, stores them and makes them the adapter's next version.

        `alias` then points at that version alone. Nothing is visible before all of this has happened. It must
        be the first call in its scope, which has to be a writing one: checking and copying take long and hold
        no connection. `tensors` is a path or a seekable open file, read in a thread. What is uploaded twice
        becomes two versions that share their bytes. `tags` and `description` are the adapter's from then on.

        Raises Invalid and AdapterInvalid (nothing is kept), Conflict (`quota_exceeded`), StorageFull, Unavailable.
        """
        assert not self._session.in_transaction(), "publish must be the first call in its scope"
        manifest = await self._manifests.required()
        check_adapter_name(name, base_model=manifest.model_id)
        check_alias_name(alias)
        described(NOTHING_SAID, tags, description)
        staged = await self._stage.prepare(config_json, tensors, manifest, self._blobs)
        published = await register(self._session, name, staged)
        await check_quotas(self._session, await self._limits_of_tenant())
        made = {"digest": published.digest, "rank": published.rank, "size_bytes": published.size_bytes}
        await self._audit.record("adapter_version.create", _version_target(name, published.version), after=made)
        await self._move_alias(published.adapter_id, name, alias, [AliasTarget(published.version)])
        if tags is not None or description is not None:
            await self.update(name, tags=tags, description=description)
        if not await self._blobs.has(staged.digest):
            # A sweep came between. It needs the lock that this scope holds by now, so none can come again.
            raise Unavailable("The upload was swept away before it was registered; send it again.")
        return published

    async def list(
        self, wanted: AdapterFilter = EVERY_ADAPTER, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[Adapter]:
        """Newest first; `after` is the id of the last one seen."""
        return await adapter_page(self._session, wanted, after=after, limit=limit)

    async def get(self, name: str) -> Adapter:
        adapter = await require_adapter(self._session, name)
        return await adapter_of(self._session, adapter.id)

    async def versions(
        self, name: str, *, after: int | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[AdapterVersion]:
        """Highest number first; `after` is the last number seen."""
        checked_limit(limit)
        adapter = await require_adapter(self._session, name)
        query = select_versions(adapter.id)
        if after is not None:
            if not could_be_version(after):
                raise Invalid("`after` is not a version.", param="after")
            query = query.where(AdapterVersionRow.version < after)
        rows = (await self._session.execute(query.limit(limit + 1))).all()
        return cut_page([version_of(adapter.name, row) for row in rows], limit)

    async def version(self, name: str, version: int) -> AdapterVersion:
        return await require_version(self._session, await require_adapter(self._session, name), version)

    async def config(self, name: str, version: int) -> bytes:
        """The version's adapter_config.json, byte for byte as it was uploaded."""
        found = await self.version(name, version)
        row = AdapterVersionRow
        here = (row.adapter_id == found.adapter_id, row.version == found.version)
        return (await self._session.scalars(select(row.config).where(*here))).one()

    async def update(
        self,
        name: str,
        *,
        limits: Mapping[str, int | None] | None = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> Adapter:
        """Replaces what is given, limits one by one. Raises Invalid."""
        adapter = await self.get(name)
        said = described(adapter.description, tags, description)
        changed = adapter.limits.merged(limits or {})
        here = AdapterRow.id == adapter.id
        await self._session.execute(update(AdapterRow).where(here).values(limits=changed, updated_at=utc_now()))
        if said != adapter.description:
            await describe(self._session, adapter, said)
        after = await self.get(name)
        await self._audit.record_change("adapter.update", f"adapter:{name}", "", adapter, after)
        return after

    async def _limits_of_tenant(self) -> TenantLimits:
        query = select(TenantRow.limits).where(TenantRow.id == tenant_of(self._session))
        return (await self._session.execute(query)).scalar_one()

    async def delete(self, name: str) -> None:
        """Deletes it with its versions and aliases. Requests in flight finish on what they resolved."""
        adapter = await require_adapter(self._session, name)
        gone = {"deleted_at": utc_now()}
        await drop_aliases(self._session, adapter.id)
        versions = update(AdapterVersionRow).where(AdapterVersionRow.adapter_id == adapter.id)
        await self._session.execute(versions.where(AdapterVersionRow.deleted_at.is_(None)).values(**gone))
        await self._session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**gone))
        await self._audit.record("adapter.delete", f"adapter:{name}", before={"last_version": adapter.last_version})

    async def delete_version(self, name: str, version: int) -> None:
        """Raises Conflict while an alias points at the version."""
        adapter = await require_adapter(self._session, name)
        found = await require_version(self._session, adapter, version)
        aliases = await aliases_pointing_at(self._session, adapter.id, version)
        if aliases:
            named = ", ".join(f"`{alias}`" for alias in aliases)
            raise Conflict(
                f"Version {version} of `{adapter.name}` is a target of {named}; move the alias first.",
                code="version_in_use",
                param="version",
            )
        here = (AdapterVersionRow.adapter_id == adapter.id, AdapterVersionRow.version == version)
        await self._session.execute(update(AdapterVersionRow).where(*here).values(deleted_at=utc_now()))
        was = {"digest": found.digest}
        await self._audit.record("adapter_version.delete", _version_target(name, version), before=was)

    async def aliases(self, name: str) -> Aliases:
        return (await self.get(name)).aliases

    async def set_alias(self, name: str, alias: str, targets: Sequence[AliasTarget]) -> tuple[AliasTarget, ...]:
        """Points the alias at these targets and no others; returns them ordered by version."""
        check_alias_name(alias)
        check_targets(targets)
        adapter = await require_adapter(self._session, name)
        await self._move_alias(adapter.id, name, alias, targets)
        return tuple(sorted(targets, key=lambda target: target.version))

    async def route(self, name: str, *, version: int | None = None, alias: str | None = None) -> Route:
        """What `name`, `name:version` or `name@alias` means now. Raises NotFound."""
        assert version is None or alias is None
        if version is not None:
            return await route_to_version(self._session, name, version)
        return await route_to_alias(self._session, name, alias or DEFAULT_ALIAS)

    async def _move_alias(self, adapter_id: str, name: str, alias: str, targets: Sequence[AliasTarget]) -> None:
        was = (await aliases_of(self._session, [adapter_id])).get(adapter_id, {}).get(alias)
        await move_alias(self._session, adapter_id, alias, targets)
        before = None if was is None else _targets_facts(was)
        await self._audit.record("alias.set", f"alias:{name}@{alias}", before=before, after=_targets_facts(targets))


def _version_target(name: str, version: int) -> str:
    return f"adapter_version:{name}:{version}"


def _targets_facts(targets: Sequence[AliasTarget]) -> dict[str, object]:
    ordered = sorted(targets, key=lambda target: target.version)
    return {"targets": [{"version": target.version, "weight": target.weight} for target in ordered]}
