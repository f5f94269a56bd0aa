"""Pages of usage, keys, tenants, audit and the engine."""
