"""Pages of adapters."""
