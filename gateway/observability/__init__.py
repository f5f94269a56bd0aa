"""The metrics of the gateway and the engine, for Prometheus and for the operator."""
