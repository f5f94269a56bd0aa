"""Benchmarks: figures that the documents quote, taken by scripts that anybody can run."""
