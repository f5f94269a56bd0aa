"""Periodic background work of a gateway worker."""
