"""Adapters, their versions, aliases and routing."""
