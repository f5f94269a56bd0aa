"""How this API speaks HTTP: envelopes, bodies, event streams, middleware, draining."""
