"""The formats in which models write tool calls, one a file."""
