"""Simulations of many engines."""
