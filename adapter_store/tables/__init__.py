"""The schema: SQLAlchemy tables and column types."""
