"""The schema of a fleet: the registry of engines, and the sizes of replica sets."""

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base


class EngineLeaseRow(Base):
    """An engine that gateways may use until its lease expires."""

    __tablename__ = "engine_leases"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(64))  # the process that renews the lease
    target: Mapped[str]
    machine: Mapped[str | None]  # the only one that can reach it; null: any can
    certificate_name: Mapped[str | None]
    base_digest: Mapped[str]
    adapter_slots: Mapped[int]
    running: Mapped[int]
    waiting: Mapped[int]
    expires_at: Mapped[datetime]  # by the database's clock


class ReplicaSetsRow(Base):
    """The adapters for which a process sees demand for more than one engine, until it says so again."""

    __tablename__ = "replica_sets"

    process: Mapped[str] = mapped_column(String(64), primary_key=True)
    sizes: Mapped[str] = mapped_column(Text)  # JSON: of each set its adapter's tenant id and digest, its engines
    expires_at: Mapped[datetime]  # by the database's clock
