"""Benchmarks of the engine on a CPU."""
