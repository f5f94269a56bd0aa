"""The HTTP layer: envelopes, bodies, event streams, middleware, draining."""
