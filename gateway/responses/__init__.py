"""Responses in the background: a process runs them beside the requests that it serves."""
