"""Imports from hubs and buckets, and their leases."""
