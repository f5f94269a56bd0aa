"""Which version a request for an adapter gets."""

import hashlib
import random
from collections.abc import Sequence

from sqlalchemy import Row, Select, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import ResolvedAdapter
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.limits import Limits
from loragate.adapter_store.manifests import base_model_unknown
from loragate.adapter_store.names import could_be_name, could_be_version
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, AliasTargetRow, EngineManifestRow

_HASH_RANGE = 1 << 64
_ECHOED = 100  # characters of an unknown name
_system_random = random.SystemRandom()


def adapter_not_found(name: str) -> NotFound:
    """The same words and code for a missing adapter and for someone else's."""
    return NotFound(
        f"The model `{name[:_ECHOED]}` does not exist or you do not have access to it.",
        code="model_not_found",
        param="model",
    )


def choose_arm(weights: Sequence[int], point: float) -> int:
    """Index of the weight on whose stretch of [0, 1), as long as its share of all weights, `point` lies."""
    remaining = point * sum(weights)
    for index, weight in enumerate(weights):
        remaining -= weight
        if remaining < 0:
            return index
    return len(weights) - 1  # rounding


def sticky_point(adapter_id: str, alias: str, sticky_key: str) -> float:
    """A point in [0, 1) that stays the same; one user's differ between adapters and between aliases."""
    text = "\0".join((adapter_id, alias, sticky_key))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8]) / _HASH_RANGE


async def resolve_version(session: AsyncSession, name: str, version: int) -> ResolvedAdapter:
    """Raises NotFound; Conflict and Unavailable where the version cannot be served now."""
    if not (could_be_name(name) and could_be_version(version)):
        raise adapter_not_found(name)
    query = _versions_of(name).where(AdapterVersionRow.version == version)
    row = (await session.execute(query)).one_or_none()
    if row is None:
        raise adapter_not_found(name)
    return _servable(row)


async def resolve_alias(
    session: AsyncSession, name: str, alias: str, *, sticky_key: str | None = None, draw: float | None = None
) -> ResolvedAdapter:
    """The arm for `sticky_key`, else at `draw`, a point in [0, 1) that is random by default.

    Raises NotFound; Conflict and Unavailable where the version cannot be served now.
    """
    if not (could_be_name(name) and could_be_name(alias)):
        raise adapter_not_found(name)
    target = and_(
        AliasTargetRow.adapter_id == AdapterVersionRow.adapter_id,
        AliasTargetRow.version == AdapterVersionRow.version,
        AliasTargetRow.alias == alias,
    )
    query = _versions_of(name).add_columns(AliasTargetRow.weight).join(AliasTargetRow, target)
    arms = (await session.execute(query.order_by(AliasTargetRow.version))).all()
    if not arms:
        raise adapter_not_found(name)
    if sticky_key is not None:
        point = sticky_point(arms[0].adapter_id, alias, sticky_key)
    else:
        point = _system_random.random() if draw is None else draw
    return _servable(arms[choose_arm([arm.weight for arm in arms], point)])


def _versions_of(name: str) -> Select[str, str, int, str, int, str, Limits, str | None]:
    """The living versions of the adapter with this name, each beside the base that the engine serves."""
    adapter, version = AdapterRow, AdapterVersionRow
    served_base = select(EngineManifestRow.base_digest).scalar_subquery()
    return (
        select(
            version.adapter_id,
            adapter.name,
            version.version,
            version.digest,
            version.size_bytes,
            version.base_digest,
            adapter.limits,
            served_base.label("served_base"),
        )
        .join(adapter, adapter.id == version.adapter_id)
        .where(adapter.name == name, adapter.deleted_at.is_(None), version.deleted_at.is_(None))
    )


def _servable(row: Row[str, str, int, str, int, str, Limits, str | None]) -> ResolvedAdapter:
    if row.served_base is None:
        raise base_model_unknown()
    if row.base_digest != row.served_base:
        raise Conflict(
            f"Version {row.version} of `{row.name}` was made for another base model than the one served "
            "here; publish a version for this base model.",
            code="base_model_mismatch",
            param="model",
        )
    return ResolvedAdapter(
        adapter_id=row.adapter_id,
        name=row.name,
        version=row.version,
        digest=row.digest,
        size_bytes=row.size_bytes,
        base_digest=row.base_digest,
        limits=row.limits,
    )
