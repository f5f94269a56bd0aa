"""Request bodies of adapters, files, jobs, usage and administration."""
