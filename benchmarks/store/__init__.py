"""Benchmarks of the adapter store."""
