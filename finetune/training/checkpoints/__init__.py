"""Checkpoints of a run on disk, without pickle."""
