"""The commands' side of the HTTP API: calls, transfers and terminal output."""
