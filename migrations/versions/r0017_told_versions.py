"""What lists tell of versions and aliases, in the adapter's row.

Revision ID: 0017
Revises: 0016
"""

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_ADAPTERS = sa.table("adapters", *map(sa.column, ("tenant_id", "id", "latest_version", "routes")))
_VERSIONS = sa.table(
    "adapter_versions", *map(sa.column, ("tenant_id", "adapter_id", "version", "digest", "status", "deleted_at"))
)
_TARGETS = sa.table("alias_targets", *map(sa.column, ("tenant_id", "adapter_id", "alias", "version", "weight")))


def upgrade() -> None:
    op.add_column("adapters", sa.Column("latest_version", sa.Integer, nullable=True))
    op.add_column("adapters", sa.Column("routes", sa.Text, nullable=True))
    connection, adapter = op.get_bind(), _ADAPTERS.c
    here = (adapter.tenant_id == sa.bindparam("owner"), adapter.id == sa.bindparam("which"))
    told = sa.update(_ADAPTERS).where(*here).values(latest_version=sa.bindparam("latest"), routes=sa.bindparam("said"))
    for owner in connection.execute(sa.select(adapter.tenant_id).distinct()).scalars().all():
        if rows := _told(connection, owner):
            connection.execute(told, rows)


def downgrade() -> None:
    op.drop_column("adapters", "routes")
    op.drop_column("adapters", "latest_version")


def _told(connection: sa.Connection, owner: str) -> list[dict[str, Any]]:
    """Of each of a tenant's adapters of which anything is to be told."""
    version, target = _VERSIONS.c, _TARGETS.c
    published = (version.status.in_(("ready", "disabled", "quarantined")), version.deleted_at.is_(None))
    highest = sa.select(version.adapter_id, sa.func.max(version.version)).where(version.tenant_id == owner, *published)
    latest = dict(connection.execute(highest.group_by(version.adapter_id)).tuples().all())
    of_version = sa.and_(
        version.tenant_id == target.tenant_id,
        version.adapter_id == target.adapter_id,
        version.version == target.version,
    )
    arms = sa.select(target.adapter_id, target.alias, target.version, target.weight, version.digest)
    arms = arms.join_from(_TARGETS, _VERSIONS, of_version).where(target.tenant_id == owner)
    routed: dict[str, list[tuple[str, int, int, str]]] = {}
    for which, *arm in connection.execute(arms.order_by(target.alias, target.version)):
        routed.setdefault(which, []).append(tuple(arm))
    return [
        {"owner": owner, "which": which, "latest": latest.get(which), "said": _routes(routed.get(which, ()))}
        for which in sorted(latest.keys() | routed.keys())
    ]


def _routes(arms: Iterable[tuple[str, int, int, str]]) -> str | None:
    """As `loragate.adapter_store.adapters.route_summary` wrote them at this revision."""
    aliases: dict[str, list[tuple[int, int]]] = {}
    for alias, version, weight, _ in arms:
        aliases.setdefault(alias, []).append((version, weight))
    digests = sorted({(version, digest) for _, version, _, digest in arms})
    return json.dumps((aliases, digests), separators=(",", ":")) if aliases else None
