"""Imports from hubs and buckets, and the leases of their workers."""
