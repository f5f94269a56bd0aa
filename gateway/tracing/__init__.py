"""OpenTelemetry traces: a request, what was done for it, how long the engine took. Off unless an endpoint is set."""
