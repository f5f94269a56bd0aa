"""API keys, secrets and principals."""
