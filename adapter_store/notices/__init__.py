"""Change notices, within a process or between processes through Redis."""
