"""FastAPI dependencies: services, caller requirements, JSON bodies, idempotency keys."""
