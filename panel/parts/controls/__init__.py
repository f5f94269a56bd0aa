"""Buttons, fields and pickers."""
