"""Indexes for items of conversations that requests refer to by their ids, and for sums of stored bytes, which would
otherwise read all rows with their contents.

Revision ID: 0036
Revises: 0035
"""

from alembic import op

revision = "0036"
down_revision = "0035"

_INDEXES = {
    "conversation_items": ["tenant_id", "id_tag"],
    "stored_responses": ["tenant_id", "size_bytes"],
    "conversations": ["tenant_id", "size_bytes"],
}


def upgrade() -> None:
    for table, columns in _INDEXES.items():
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def downgrade() -> None:
    for table, columns in _INDEXES.items():
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
