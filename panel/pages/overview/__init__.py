"""The overview, of the server or of a tenant."""
