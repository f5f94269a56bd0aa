"""The gRPC services for tenants, with the same checks, operations and errors as the REST API."""
