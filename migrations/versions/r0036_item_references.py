"""An index for items of conversations that requests refer to by their ids.

Revision ID: 0036
Revises: 0035
"""

from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.create_index("ix_conversation_items_tenant_id_id_tag", "conversation_items", ["tenant_id", "id_tag"])


def downgrade() -> None:
    op.drop_index("ix_conversation_items_tenant_id_id_tag", "conversation_items")
