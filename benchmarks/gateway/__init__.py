"""Benchmarks of one gateway worker."""
