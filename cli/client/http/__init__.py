"""HTTP calls to a server's API."""
