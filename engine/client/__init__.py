"""The client of the engine's gRPC service; imports no torch."""
