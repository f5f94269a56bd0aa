"""Tenants, keys, adapters, versions, aliases and the engine's manifest.

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ALIVE = sa.text("deleted_at IS NULL")


def _time(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    _installation()
    _tenants()
    _api_keys()
    _adapters()
    _adapter_versions()
    _aliases()
    _engine_manifests()


def downgrade() -> None:
    for table in (
        "engine_manifests",
        "alias_targets",
        "adapter_aliases",
        "adapter_versions",
        "adapters",
        "api_keys",
        "tenants",
        "installation",
    ):
        op.drop_table(table)


def _installation() -> None:
    op.create_table(
        "installation",
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_installation"),
    )


def _tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        _time("created_at"),
        _time("updated_at"),
        _time("deleted_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.CheckConstraint("weight > 0", name=op.f("ck_tenants_weight_positive")),
    )
    op.create_index(
        "uq_tenants_alive_name",
        "tenants",
        ["name"],
        unique=True,
        sqlite_where=_ALIVE,
        postgresql_where=_ALIVE,
    )
    op.create_index("ix_tenants_created_at_id", "tenants", ["created_at", "id"])


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("key_hash", sa.LargeBinary, nullable=False),
        sa.Column("scopes", sa.String(255), nullable=False),
        _time("expires_at", nullable=True),
        _time("revoked_at", nullable=True),
        sa.Column("rotated_from", sa.String(64), nullable=True),
        _time("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys_tenant_id_tenants"),
        sa.ForeignKeyConstraint(["rotated_from"], ["api_keys.id"], name="fk_api_keys_rotated_from_api_keys"),
    )
    op.create_index("ix_api_keys_tenant_id_created_at_id", "api_keys", ["tenant_id", "created_at", "id"])


def _adapters() -> None:
    op.create_table(
        "adapters",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("last_version", sa.Integer, nullable=False),
        _time("created_at"),
        _time("updated_at"),
        _time("deleted_at", nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_adapters"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_adapters_tenant_id_tenants"),
    )
    op.create_index(
        "uq_adapters_alive_name",
        "adapters",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=_ALIVE,
        postgresql_where=_ALIVE,
    )
    op.create_index("ix_adapters_tenant_id_created_at_id", "adapters", ["tenant_id", "created_at", "id"])


def _adapter_versions() -> None:
    op.create_table(
        "adapter_versions",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("adapter_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("config", sa.LargeBinary, nullable=False),
        sa.Column("base_model", sa.String(255), nullable=False),
        sa.Column("base_digest", sa.String(255), nullable=False),
        _time("created_at"),
        _time("deleted_at", nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "version", name="pk_adapter_versions"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name="fk_adapter_versions_tenant_id_adapter_id_adapters",
        ),
        sa.CheckConstraint("version > 0", name=op.f("ck_adapter_versions_version_positive")),
    )
    op.create_index("ix_adapter_versions_tenant_id_digest", "adapter_versions", ["tenant_id", "digest"])


def _aliases() -> None:
    op.create_table(
        "adapter_aliases",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("adapter_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "name", name="pk_adapter_aliases"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name="fk_adapter_aliases_tenant_id_adapter_id_adapters",
        ),
    )
    op.create_table(
        "alias_targets",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("adapter_id", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("weight", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "alias", "version", name="pk_alias_targets"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "alias"],
            ["adapter_aliases.tenant_id", "adapter_aliases.adapter_id", "adapter_aliases.name"],
            name="fk_alias_targets_tenant_id_adapter_id_alias_adapter_aliases",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.version"],
            name="fk_alias_targets_tenant_id_adapter_id_version_adapter_versions",
        ),
        sa.CheckConstraint("weight > 0", name=op.f("ck_alias_targets_weight_positive")),
    )


def _engine_manifests() -> None:
    op.create_table(
        "engine_manifests",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("base_digest", sa.String(255), nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_engine_manifests"),
    )
