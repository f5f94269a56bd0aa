"""Process-level helpers: memory, the interpreter, streams, log format."""
