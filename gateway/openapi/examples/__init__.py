"""Examples in the OpenAPI document."""
