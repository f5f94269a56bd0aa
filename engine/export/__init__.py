"""Merged export: the base model's checkpoint with an adapter merged into its weights, as an archive."""
