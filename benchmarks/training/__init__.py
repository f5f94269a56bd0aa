"""Benchmarks of the training API and of the trainer."""
