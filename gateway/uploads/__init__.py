"""Multipart bodies on their way to disk."""
