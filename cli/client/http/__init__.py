"""The HTTP API as commands call it."""
