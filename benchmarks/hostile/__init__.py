"""What one tenant's attacks cost another tenant: `python -m benchmarks.hostile`."""
