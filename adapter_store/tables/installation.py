"""Facts about the installation, and the manifest of its base model."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base


class InstallationRow(Base):
    """Facts about this installation: the secret key's fingerprint, the admin key's hash."""

    __tablename__ = "installation"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class EngineManifestRow(Base):
    """The engine's latest manifest of its base model: one row, replaced as a whole."""

    __tablename__ = "engine_manifests"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    base_digest: Mapped[str]
    payload: Mapped[bytes]  # a serialized engine.proto Manifest
    updated_at: Mapped[datetime]
