"""Output on a terminal or a pipe."""
