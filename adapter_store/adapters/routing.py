"""Routing: the version that a request for an adapter gets."""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import ResolvedAdapter, VersionStatus
from loragate.adapter_store.adapters.classifier import classifier_of
from loragate.adapter_store.adapters.rows import published
from loragate.adapter_store.base_model.manifests import base_model_unknown
from loragate.adapter_store.database.scoped_statements import TENANT_PARAM, scoped
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict, Forbidden, NotFound, StoreError, Unavailable
from loragate.adapter_store.names import could_be_name, could_be_version, shortened
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow, AliasTargetRow, DeferredPublicationRow
from loragate.adapter_store.tables.installation import EngineManifestRow

_HASH_RANGE = 1 << 64
_ALMOST_ONE = math.nextafter(1, 0)
_system_random = random.SystemRandom()


def adapter_not_found(name: str) -> NotFound:
    """Return the same error for a missing adapter and for another tenant's."""
    return NotFound(
        f"The model `{shortened(name)}` does not exist or you do not have access to it.",
        code="model_not_found",
        param="model",
    )


def choose_target(weights: Sequence[int], point: float) -> tuple[int, float]:
    """On which weight's stretch of [0, 1), as long as its share of all weights, `point` lies; and where on it, as a
    point in [0, 1) again."""
    remaining = point * sum(weights)
    for index, weight in enumerate(weights):
        if remaining < weight:
            return index, remaining / weight
        remaining -= weight
    return len(weights) - 1, _ALMOST_ONE  # rounding


def sticky_point(adapter_id: str, alias: str, sticky_key: str) -> float:
    """Return a constant point in [0, 1); for one key it differs between adapters and between aliases."""
    text = "\0".join((adapter_id, alias, sticky_key))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8]) / _HASH_RANGE


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """`weight` is relative to the other targets'."""

    adapter: ResolvedAdapter
    weight: int
    status: VersionStatus = VersionStatus.READY


@dataclass(frozen=True, slots=True)
class Route:
    """The versions among which requests for an adapter are split, as of one moment, ordered by version."""

    alias: str | None
    targets: tuple[RouteTarget, ...]
    served_base: str | None  # the digest of the base model that the engine serves; None if unknown

    def pick(self, *, sticky_key: str | None = None, draw: float | None = None) -> ResolvedAdapter:
        """Return the target for `sticky_key`, else at `draw`, a point in [0, 1) that is random by default.

        A target that is out of service leaves its share to the others. Raise Forbidden, Conflict and Unavailable where
        none can be served now.
        """
        if len(self.targets) == 1:
            return self._servable(self.targets[0])
        if sticky_key is not None:
            point = sticky_point(self.targets[0].adapter.adapter_id, self.alias or "", sticky_key)
        else:
            point = _system_random.random() if draw is None else draw
        index, within = choose_target([target.weight for target in self.targets], point)
        target = self.targets[index]
        rest = [each for each in self.targets if each.status is VersionStatus.READY]
        if target.status is not VersionStatus.READY and rest:
            target = rest[choose_target([each.weight for each in rest], within)[0]]
        return self._servable(target)

    def _servable(self, target: RouteTarget) -> ResolvedAdapter:
        adapter = target.adapter
        if target.status is VersionStatus.DISABLED:
            raise Forbidden(
                f"`{adapter.name}:{adapter.version}` is disabled; enable it to use it again.",
                code="adapter_disabled",
                param="model",
            )
        if target.status is VersionStatus.QUARANTINED:
            raise Unavailable(
                f"`{adapter.name}:{adapter.version}` is quarantined: its bytes are corrupt. Publish it again, or use "
                "another version.",
                code="adapter_quarantined",
                param="model",
            )
        if self.served_base is None:
            raise base_model_unknown()
        if adapter.base_digest != self.served_base:
            raise Conflict(
                f"Version {adapter.version} of `{adapter.name}` was made for a base model other than the one served "
                "here; publish a version for this base model.",
                code="base_model_mismatch",
                param="model",
            )
        return adapter


async def route_to_version(session: AsyncSession, name: str, version: int) -> Route:
    """Return the route to one version. Raise NotFound, and Conflict for a version that waits for an engine."""
    if not (could_be_name(name) and could_be_version(version)):
        raise adapter_not_found(name)
    values = {TENANT_PARAM.key: tenant_of(session), "name": name, "version": version}
    row = (await session.execute(_versions_of(by_alias=False), values)).one_or_none()
    if row is None:
        raise await _missing(session, name, DeferredPublicationRow.version == version)
    return Route(None, (RouteTarget(_adapter_of(row), 1, _status_of(row)),), row.served_base)


async def route_to_alias(session: AsyncSession, name: str, alias: str) -> Route:
    """Return the route to an alias. Raise NotFound, and Conflict if its only version waits for an engine."""
    if not (could_be_name(name) and could_be_name(alias)):
        raise adapter_not_found(name)
    values = {TENANT_PARAM.key: tenant_of(session), "name": name, "alias": alias}
    rows = (await session.execute(_versions_of(by_alias=True), values)).all()
    if not rows:
        raise await _missing(session, name, DeferredPublicationRow.alias == alias)
    targets = tuple(RouteTarget(_adapter_of(row, alias), row.weight, _status_of(row)) for row in rows)
    return Route(alias, targets, rows[0].served_base)


async def _missing(session: AsyncSession, name: str, waits: ColumnElement[bool]) -> StoreError:
    """Return the error for a version that does not exist or is not ready."""
    kept, adapter = DeferredPublicationRow, AdapterRow
    query = select(kept.version).join(adapter, adapter.id == kept.adapter_id)
    query = query.where(adapter.name == name, adapter.deleted_at.is_(None), waits).order_by(kept.version.desc())
    version = (await session.scalars(query.limit(1))).first()
    if version is None:
        return adapter_not_found(name)
    return Conflict(
        f"Version {version} of `{name}` is still being checked: no engine has been available to try it. It becomes "
        "ready by itself once one is.",
        code="adapter_verifying",
        param="model",
    )


@cache
def _versions_of(*, by_alias: bool) -> Select[Any]:
    """Return the query for published versions of the adapter `name`, each with the base model that the engine serves:
    the targets of an `alias`, in order, or one `version`."""
    adapter, version, target = (each.__table__.c for each in (AdapterRow, AdapterVersionRow, AliasTargetRow))
    of_adapter = and_(version.tenant_id == TENANT_PARAM, version.adapter_id == adapter.id)
    query: Select[Any] = (
        select(
            version.adapter_id,
            adapter.name,
            version.version,
            version.digest,
            version.size_bytes,
            version.base_digest,
            version.status,
            version.classifier,
            adapter.limits,
            adapter.disabled_at,
            select(EngineManifestRow.__table__.c.base_digest).scalar_subquery().label("served_base"),
        )
        .join_from(AdapterRow.__table__, AdapterVersionRow.__table__, of_adapter)
        .where(adapter.tenant_id == TENANT_PARAM, adapter.name == bindparam("name"), adapter.deleted_at.is_(None))
        .where(version.deleted_at.is_(None), published(version.status))
    )
    if not by_alias:
        return scoped(query.where(version.version == bindparam("version")))
    of_version = and_(
        target.tenant_id == TENANT_PARAM,
        target.adapter_id == version.adapter_id,
        target.version == version.version,
        target.alias == bindparam("alias"),
    )
    return scoped(query.add_columns(target.weight).join(AliasTargetRow.__table__, of_version).order_by(target.version))


def _status_of(row: Any) -> VersionStatus:
    """Return a version's status; all versions of a disabled adapter are disabled."""
    return VersionStatus(row.status) if row.disabled_at is None else VersionStatus.DISABLED


def _adapter_of(row: Any, alias: str | None = None) -> ResolvedAdapter:
    """Return the adapter in a row of `_versions_of`."""
    return ResolvedAdapter(
        adapter_id=row.adapter_id,
        name=row.name,
        version=row.version,
        digest=row.digest,
        size_bytes=row.size_bytes,
        base_digest=row.base_digest,
        limits=row.limits,
        alias=alias,
        classifier=classifier_of(row.classifier),
    )
