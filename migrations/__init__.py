"""Alembic migrations of the adapter store's schema."""
