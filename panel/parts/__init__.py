"""The building blocks of pages."""
