"""Change notices between processes, in process or through Redis."""
