"""Imports: adapters that the gateway fetches itself, only from a hub or from buckets."""
