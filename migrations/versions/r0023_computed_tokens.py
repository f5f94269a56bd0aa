"""Tokens that were computed, beside those that were delivered.

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_NAMES = ("computed_prompt_tokens", "generated_tokens")


def upgrade() -> None:
    for name in _NAMES:
        op.add_column("usage_records", sa.Column(name, sa.BigInteger, nullable=True))
        op.add_column("usage_sums", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    # Limits go by computed tokens; of the time before, those delivered are known.
    op.execute(
        sa.text(
            "UPDATE usage_sums SET computed_prompt_tokens = prompt_tokens - cached_tokens, "
            "generated_tokens = completion_tokens"
        )
    )


def downgrade() -> None:
    for table in ("usage_sums", "usage_records"):
        for name in reversed(_NAMES):
            op.drop_column(table, name)
