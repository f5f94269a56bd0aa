"""SQLAlchemy tables."""
