"""The web panel: a process of its own that uses only the HTTP API."""
