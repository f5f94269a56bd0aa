"""Metric instruments that any layer may use."""
