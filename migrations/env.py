"""Alembic's entry point: runs the migrations on the given connection, in its transaction."""

from alembic import context

from loragate.adapter_store.tables.base import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters tables by copying them
)
with context.begin_transaction():
    context.run_migrations()
