"""Benchmarks of the installation."""
