"""Alembic migrations of the adapter store's schema, run by `loragate.adapter_store.database.schema`.

A revision is a file in `versions/`, written by hand and kept for ever once released; the tests fail while the
migrations and `loragate.adapter_store.tables.base` do not say the same.
"""
