"""Adapters, their versions and aliases, and the work that leads to versions."""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.limits import Limits
from loragate.adapter_store.tables.base import Base, TenantOwned
from loragate.adapter_store.tables.columns import LimitsColumn, TagsColumn

_ALIVE = text("deleted_at IS NULL")
_EMPTY = text("''")
_PLACED = text("placement IS NOT NULL")
_IN_WORK = text("status IN ('queued', 'fetching', 'checking')")


class AdapterRow(TenantOwned, Base):
    """An adapter. The migration creates the index of `search_text`, differently on each database."""

    __tablename__ = "adapters"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(
            "uq_adapters_alive_name",
            "tenant_id",
            "name",
            unique=True,
            sqlite_where=_ALIVE,
            postgresql_where=_ALIVE,
        ),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "created_at", "id"),
        Index("uq_adapters_id", "id", unique=True),
        Index(None, "placement", sqlite_where=_PLACED, postgresql_where=_PLACED),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    tags: Mapped[tuple[str, ...]] = mapped_column(TagsColumn, nullable=True)  # `adapter_tags` is their index
    description: Mapped[str] = mapped_column(Text, server_default=_EMPTY)
    search_text: Mapped[str] = mapped_column(
        Text, server_default=_EMPTY, deferred=True
    )  # see loragate.adapter_store.adapters.search_text
    placement: Mapped[str | None] = mapped_column(String(16))  # on engines, see Placement
    last_version: Mapped[int]  # the highest number ever assigned; numbers are never reused
    latest_version: Mapped[int | None]  # of the published versions; see adapters.route_summary
    routes: Mapped[str | None] = mapped_column(Text)  # JSON: the aliases' targets
    limits: Mapped[Limits] = mapped_column(LimitsColumn(Limits), nullable=True)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    published_at: Mapped[datetime | None]  # of its first version; before that the adapter is invisible
    disabled_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]


class AdapterTagRow(TenantOwned, Base):
    __tablename__ = "adapter_tags"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        Index(None, "tag", "created_at", "adapter_id"),
        Index(None, "tenant_id", "tag", "created_at", "adapter_id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    adapter_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tag: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[datetime]  # the adapter's, so that an index has a tag's adapters in list order


class AdapterVersionRow(TenantOwned, Base):
    __tablename__ = "adapter_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        CheckConstraint("version > 0", name="version_positive"),
        Index(None, "tenant_id", "digest"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    adapter_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    digest: Mapped[str]
    status: Mapped[str] = mapped_column(String(32))
    rank: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    config: Mapped[bytes]  # empty; once adapter_config.json, which is with the tensors and counts as they do
    base_model: Mapped[str]
    base_digest: Mapped[str]
    reason: Mapped[str | None] = mapped_column(Text)  # why it is rejected or quarantined
    notes: Mapped[str | None] = mapped_column(Text)
    source: Mapped[str] = mapped_column(server_default="upload")
    dataset_digest: Mapped[str | None]
    parent_version: Mapped[int | None]
    evaluation: Mapped[str | None] = mapped_column(Text)  # JSON
    signer: Mapped[str | None] = mapped_column(String(64))  # verified when it was published
    classifier: Mapped[str | None] = mapped_column(Text)  # JSON: its labels; null: it generates
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class DeferredPublicationRow(TenantOwned, Base):
    """A version that becomes ready by itself, once an engine has tried it."""

    __tablename__ = "deferred_publications"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.version"],
            name="fk_deferred_publications_version",  # Postgres' names end at 63 characters
        ),
        Index(None, "due_at"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    adapter_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    alias: Mapped[str] = mapped_column(String(64))
    # JSON: the adapter's tags and description, null where not given. To rename the column would not be additive.
    labels: Mapped[str] = mapped_column("said", Text)
    own_tokens: Mapped[str] = mapped_column(Text)  # JSON
    attempts: Mapped[int]  # which an engine answered without a verdict
    due_at: Mapped[datetime]  # by the database's clock; the gateway that tries it moves this ahead
    created_at: Mapped[datetime]


class AdapterImportRow(TenantOwned, Base):
    """An import and its progress; a secret for the source is never stored."""

    __tablename__ = "adapter_imports"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "updated_at", sqlite_where=_IN_WORK, postgresql_where=_IN_WORK),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    source: Mapped[str] = mapped_column(String(1024))
    name: Mapped[str] = mapped_column(String(64))
    alias: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    bytes_done: Mapped[int] = mapped_column(BigInteger)
    bytes_total: Mapped[int | None] = mapped_column(BigInteger)
    adapter_id: Mapped[str | None] = mapped_column(String(64))  # of `version`
    version: Mapped[int | None]  # the result, perhaps before an engine has tried it
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    error_param: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]  # by the database's clock, every few seconds while a process works on it
    actor: Mapped[str | None] = mapped_column(Text)  # who requested it
    resumable: Mapped[bool] = mapped_column(server_default=false())  # another process can continue it
    attempts: Mapped[int] = mapped_column(server_default=text("0"))  # to resume it


class AdapterAliasRow(TenantOwned, Base):
    __tablename__ = "adapter_aliases"
    __table_args__ = (ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    adapter_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    previous: Mapped[str | None] = mapped_column(Text)  # JSON: the targets before the last move, for a rollback
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class AliasTargetRow(TenantOwned, Base):
    __tablename__ = "alias_targets"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "alias"],
            ["adapter_aliases.tenant_id", "adapter_aliases.adapter_id", "adapter_aliases.name"],
        ),
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.version"],
        ),
        CheckConstraint("weight > 0", name="weight_positive"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    adapter_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    weight: Mapped[int]
