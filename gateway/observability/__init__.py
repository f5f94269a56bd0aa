"""The gateway's own numbers and the engine's, for Prometheus and for the operator."""
