"""Fine-tuning jobs, their events and their checkpoints.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_OF_JOBS = (["tenant_id", "job_id"], ["fine_tuning_jobs.tenant_id", "fine_tuning_jobs.id"])


def upgrade() -> None:
    _jobs()
    op.create_table(
        "fine_tuning_events",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("level", sa.String(8), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "job_id", "number", name="pk_fine_tuning_events"),
        sa.ForeignKeyConstraint(*_OF_JOBS, name="fk_fine_tuning_events_tenant_id_job_id_fine_tuning_jobs"),
    )
    op.create_table(
        "fine_tuning_checkpoints",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("model", sa.String(255), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "job_id", "step", name="pk_fine_tuning_checkpoints"),
        sa.ForeignKeyConstraint(*_OF_JOBS, name="fk_fine_tuning_checkpoints_tenant_id_job_id_fine_tuning_jobs"),
    )


def downgrade() -> None:
    for table in ("fine_tuning_checkpoints", "fine_tuning_events", "fine_tuning_jobs"):
        op.drop_table(table)


def _jobs() -> None:
    op.create_table(
        "fine_tuning_jobs",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("model", sa.String(255), nullable=False),
        sa.Column("training_file", sa.String(64), nullable=False),
        sa.Column("validation_file", sa.String(64), nullable=True),
        sa.Column("hyperparameters", sa.Text, nullable=False),
        sa.Column("suffix", sa.String(64), nullable=True),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("error_code", sa.String(64), nullable=True),
        sa.Column("error_message", sa.Text, nullable=True),
        sa.Column("error_param", sa.String(255), nullable=True),
        sa.Column("recipe", sa.Text, nullable=True),
        sa.Column("fine_tuned_model", sa.String(255), nullable=True),
        sa.Column("trained_tokens", sa.BigInteger, nullable=True),
        sa.Column("result_file", sa.String(64), nullable=True),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("steps", sa.Integer, nullable=True),
        sa.Column("last_event", sa.Integer, nullable=False),
        sa.Column("wanted", sa.String(16), nullable=True),
        sa.Column("worker", sa.String(64), nullable=True),
        sa.Column("held_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_fine_tuning_jobs"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_fine_tuning_jobs_tenant_id_tenants"),
    )
    op.create_index(
        "ix_fine_tuning_jobs_tenant_id_created_at_id", "fine_tuning_jobs", ["tenant_id", "created_at", "id"]
    )
    op.create_index("ix_fine_tuning_jobs_status_created_at", "fine_tuning_jobs", ["status", "created_at"])
