"""The link to the engine: statistics, residency, adapter bytes, probes."""
