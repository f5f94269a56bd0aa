"""Output to a terminal or a pipe."""
