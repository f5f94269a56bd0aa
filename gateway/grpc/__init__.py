"""The tenants' gRPC services: the REST API's twin, through the same checks, calls and errors."""
