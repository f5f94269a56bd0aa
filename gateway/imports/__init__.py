"""Adapters that the gateway fetches itself, from a hub or from buckets, and nothing else from nowhere else."""
