"""The schema of stored responses and conversations. What `sealed…` columns hold is encrypted under the tenant's key."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class StoredResponseRow(TenantOwned, Base):
    """A response. While it runs in the background, `worker` holds it until `held_until`, by the database's clock."""

    __tablename__ = "stored_responses"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "tenant_id", "chain_id"),
        Index(None, "tenant_id", "size_bytes"),
        Index(None, "tenant_id", "user_tag"),
        Index(None, "tenant_id", "safety_tag"),
        Index(None, "status", "created_at"),
        Index(None, "expires_at"),
        Index(None, "secret_id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(64))  # on whose behalf it is run
    model: Mapped[str] = mapped_column(String(512))
    status: Mapped[str] = mapped_column(String(16))
    background: Mapped[bool]
    streamed: Mapped[bool]  # its events are stored, too
    previous_id: Mapped[str | None] = mapped_column(String(64))
    chain_id: Mapped[str] = mapped_column(String(64))  # the id of the first response of its chain
    depth: Mapped[int]  # its place in the chain, from 1
    conversation_id: Mapped[str | None] = mapped_column(String(64))
    user_tag: Mapped[bytes | None] = mapped_column(LargeBinary)  # a keyed hash of `user`
    safety_tag: Mapped[bytes | None] = mapped_column(LargeBinary)  # and of `safety_identifier`
    secret_id: Mapped[str] = mapped_column(String(16))  # of the oldest secret with which a part of it is sealed
    sealed_request: Mapped[bytes]  # the input items and the other fields of the request
    sealed_response: Mapped[bytes]  # the response object
    size_bytes: Mapped[int] = mapped_column(BigInteger)  # with its events
    next_event: Mapped[int]  # the number of its next event
    attempts: Mapped[int]  # how often a worker claimed it
    worker: Mapped[str | None] = mapped_column(String(64))
    held_until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]


class ResponseEventsRow(TenantOwned, Base):
    """Some consecutive events of a response's stream, as a JSON list; `number` is that of the first."""

    __tablename__ = "response_events"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "response_id"], ["stored_responses.tenant_id", "stored_responses.id"]),
        Index(None, "secret_id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    response_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_number: Mapped[int]
    secret_id: Mapped[str] = mapped_column(String(16))
    sealed: Mapped[bytes]


class ConversationRow(TenantOwned, Base):
    """A conversation. `sealed` is its metadata."""

    __tablename__ = "conversations"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "tenant_id", "size_bytes"),
        Index(None, "expires_at"),
        Index(None, "secret_id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    secret_id: Mapped[str] = mapped_column(String(16))
    sealed: Mapped[bytes]
    size_bytes: Mapped[int] = mapped_column(BigInteger)  # with its items
    next_position: Mapped[int]  # of the next item
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]  # moved on by each use


class ConversationItemRow(TenantOwned, Base):
    """An item of a conversation. `response_id` is that of the response that added it."""

    __tablename__ = "conversation_items"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
        Index(None, "tenant_id", "response_id"),
        Index(None, "tenant_id", "id_tag"),
        Index(None, "tenant_id", "user_tag"),
        Index(None, "tenant_id", "safety_tag"),
        Index(None, "secret_id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    conversation_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id_tag: Mapped[bytes] = mapped_column(LargeBinary)  # a keyed hash of its id, which a client may have chosen
    response_id: Mapped[str | None] = mapped_column(String(64))
    user_tag: Mapped[bytes | None] = mapped_column(LargeBinary)
    safety_tag: Mapped[bytes | None] = mapped_column(LargeBinary)
    secret_id: Mapped[str] = mapped_column(String(16))
    sealed: Mapped[bytes]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
