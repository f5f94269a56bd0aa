"""Tenants and their repository."""
