"""Checks of tensor values and sizes."""
