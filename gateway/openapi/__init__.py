"""The OpenAPI document: what routes say of themselves, put together."""
