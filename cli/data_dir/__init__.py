"""The files that a server keeps in its data directory."""
