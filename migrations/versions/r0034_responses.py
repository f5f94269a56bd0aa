"""Stored responses with the events of their streams, conversations with their items, and whether a tenant stores by
default.

Revision ID: 0034
Revises: 0033
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column(
        "tenants", sa.Column("store_responses_by_default", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_table(
        "stored_responses",
        *_names("tenant_id", "id", "key_id"),
        sa.Column("model", sa.String(512), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("background", sa.Boolean, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        *_names("previous_id", nullable=True),
        *_names("chain_id"),
        sa.Column("depth", sa.Integer, nullable=False),
        *_names("conversation_id", nullable=True),
        *_tags(),
        sa.Column("secret_id", sa.String(16), nullable=False),
        sa.Column("sealed_request", sa.LargeBinary, nullable=False),
        sa.Column("sealed_response", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("next_event", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        *_names("worker", nullable=True),
        sa.Column("held_until", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_stored_responses"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_stored_responses_tenant_id_tenants"),
    )
    of_tenant = (["created_at", "id"], ["chain_id"], ["user_tag"], ["safety_tag"])
    _index("stored_responses", *(["tenant_id", *columns] for columns in of_tenant))
    _index("stored_responses", ["status", "created_at"], ["expires_at"], ["secret_id"])
    op.create_table(
        "response_events",
        *_names("tenant_id", "response_id"),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("last_number", sa.Integer, nullable=False),
        sa.Column("secret_id", sa.String(16), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "response_id", "number", name="pk_response_events"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "response_id"],
            ["stored_responses.tenant_id", "stored_responses.id"],
            name="fk_response_events_tenant_id_response_id_stored_responses",
        ),
    )
    _index("response_events", ["secret_id"])
    op.create_table(
        "conversations",
        *_names("tenant_id", "id"),
        sa.Column("secret_id", sa.String(16), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("next_position", sa.Integer, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_conversations"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_conversations_tenant_id_tenants"),
    )
    _index("conversations", ["tenant_id", "created_at", "id"], ["expires_at"], ["secret_id"])
    op.create_table(
        "conversation_items",
        *_names("tenant_id", "conversation_id"),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("id_tag", sa.LargeBinary, nullable=False),
        *_names("response_id", nullable=True),
        *_tags(),
        sa.Column("secret_id", sa.String(16), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "position", name="pk_conversation_items"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id"],
            ["conversations.tenant_id", "conversations.id"],
            name="fk_conversation_items_tenant_id_conversation_id_conversations",
        ),
    )
    _index("conversation_items", *(["tenant_id", each] for each in ("response_id", "user_tag", "safety_tag")))
    _index("conversation_items", ["secret_id"])


def _names(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(64), nullable=nullable) for name in names]


def _tags() -> list[sa.Column[bytes]]:
    return [sa.Column(name, sa.LargeBinary, nullable=True) for name in ("user_tag", "safety_tag")]


def _index(table: str, *columns: list[str]) -> None:
    for each in columns:
        op.create_index(f"ix_{table}_{'_'.join(each)}", table, each)


def downgrade() -> None:
    for table in ("conversation_items", "conversations", "response_events", "stored_responses"):
        op.drop_table(table)
    op.drop_column("tenants", "store_responses_by_default")
