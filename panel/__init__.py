"""The web panel: its own process, a client of the HTTP API and nothing else."""
