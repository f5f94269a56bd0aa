"""Alembic migrations of the adapter store's schema, run by `loragate.adapter_store.database.schema`.

A revision is a file in `versions/`, written by hand and kept forever once released; the tests fail if the migrations
do not produce the schema of `loragate.adapter_store.tables`.
"""
