"""OpenTelemetry traces of requests, their steps and the engine's work. Off unless an endpoint is set."""
