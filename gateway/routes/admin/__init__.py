"""The operator's routes."""
