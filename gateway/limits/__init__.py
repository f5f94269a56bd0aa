"""Limits of tenants, keys and adapters, and the amounts that remain."""
