"""Adapters, versions, aliases and their bytes."""
